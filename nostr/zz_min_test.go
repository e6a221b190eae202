package nostr

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestMin(t *testing.T) {
	if os.Getenv("MIN") == "" {
		t.Skip()
	}
	lines := usualEvents(t)[:512]
	best := time.Duration(1 << 62)
	for range 400 {
		at := time.Now()
		for _, l := range lines {
			if _, err := ParseEvent(l); err != nil {
				t.Fatal(err)
			}
		}
		best = min(best, time.Since(at))
	}
	fmt.Println("parse min ns", best.Nanoseconds()/512)
	msg := []byte(`["REQ","sub:1",{"kinds":[1,6,7],"authors":["f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"],"since":1700000000,"limit":100}]`)
	best = time.Duration(1 << 62)
	for range 400 {
		at := time.Now()
		for range 512 {
			if _, err := ParseClientMessage(msg); err != nil {
				t.Fatal(err)
			}
		}
		best = min(best, time.Since(at))
	}
	fmt.Println("req min ns", best.Nanoseconds()/512)
}
