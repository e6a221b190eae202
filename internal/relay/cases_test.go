package relay_test

import (
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
)

func memory(*testing.T) store.Store { return store.NewMemory(store.WithOwnURLs(relaytest.URL)) }

func TestCase01(t *testing.T) { relaytest.One(t, "01", memory) }
func TestCase03(t *testing.T) { relaytest.One(t, "03", memory) }
func TestCase05(t *testing.T) { relaytest.One(t, "05", memory) }
func TestCase07(t *testing.T) { relaytest.One(t, "07", memory) }
func TestCase09(t *testing.T) { relaytest.One(t, "09", memory) }
func TestCase11(t *testing.T) { relaytest.One(t, "11", memory) }
func TestCase13(t *testing.T) { relaytest.One(t, "13", memory) }
func TestCase15(t *testing.T) { relaytest.One(t, "15", memory) }
func TestCase17(t *testing.T) { relaytest.One(t, "17", memory) }
func TestCase19(t *testing.T) { relaytest.One(t, "19", memory) }
func TestCase21(t *testing.T) { relaytest.One(t, "21", memory) }
func TestCase23(t *testing.T) { relaytest.One(t, "23", memory) }
func TestCase25(t *testing.T) { relaytest.One(t, "25", memory) }
func TestCase27(t *testing.T) { relaytest.One(t, "27", memory) }
func TestCase29(t *testing.T) { relaytest.One(t, "29", memory) }
func TestCase31(t *testing.T) { relaytest.One(t, "31", memory) }
func TestCase33(t *testing.T) { relaytest.One(t, "33", memory) }
func TestCase34(t *testing.T) { relaytest.One(t, "34", memory) }
func TestCase35(t *testing.T) { relaytest.One(t, "35", memory) }
func TestCase36(t *testing.T) { relaytest.One(t, "36", memory) }
func TestCase37(t *testing.T) { relaytest.One(t, "37", memory) }
func TestCase39(t *testing.T) { relaytest.One(t, "39", memory) }
func TestCase40(t *testing.T) { relaytest.One(t, "40", memory) }
func TestCase41(t *testing.T) { relaytest.One(t, "41", memory) }
func TestCase43(t *testing.T) { relaytest.One(t, "43", memory) }
func TestCase45(t *testing.T) { relaytest.One(t, "45", memory) }
func TestCase47(t *testing.T) { relaytest.One(t, "47", memory) }
func TestCase49(t *testing.T) { relaytest.One(t, "49", memory) }
