//go:build !linux

package control

import "net"

// trusted leaves it to the mode of the socket.
func trusted(net.Conn) error { return nil }
