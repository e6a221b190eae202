package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Link joins two nodes by their numbers, the lower first.
type Link struct {
	A int `json:"a"`
	B int `json:"b"`
}

// link puts two numbers in order.
func link(a, b int) Link { return Link{min(a, b), max(a, b)} }

// Topologies are the shapes of a cluster.
var Topologies = []string{"ring", "star", "line", "mesh"}

// maxNodes bounds what one machine is asked to carry.
const maxNodes = 64

// Links says who peers with whom.
func Links(topology string, nodes int) (out []Link, err error) {
	if nodes < 2 || nodes > maxNodes {
		return nil, fmt.Errorf("--nodes is %d, want 2 to %d", nodes, maxNodes)
	}
	switch topology {
	case "line", "ring":
		for i := range nodes - 1 {
			out = append(out, Link{i, i + 1})
		}
		if topology == "ring" && nodes > 2 {
			out = append(out, Link{0, nodes - 1})
		}
	case "star":
		for i := 1; i < nodes; i++ {
			out = append(out, Link{0, i})
		}
	case "mesh":
		for i := range nodes {
			for j := i + 1; j < nodes; j++ {
				out = append(out, Link{i, j})
			}
		}
	default:
		return nil, fmt.Errorf("--topology is %q, want one of %s", topology, strings.Join(Topologies, ", "))
	}
	return out, nil
}

// Diameter is how many hops the two nodes that are farthest apart have between them.
func Diameter(links []Link, nodes int) (most int) {
	for from := range nodes {
		dist := slices.Repeat([]int{nodes}, nodes) // as good as never
		dist[from] = 0
		for range nodes {
			for _, l := range links {
				dist[l.A] = min(dist[l.A], dist[l.B]+1)
				dist[l.B] = min(dist[l.B], dist[l.A]+1)
			}
		}
		most = max(most, slices.Max(dist))
	}
	return most
}

// reachable refuses a shape in which some events could never reach every node.
func reachable(topology string, links []Link, nodes, hops int) error {
	d := Diameter(links, nodes)
	if d <= hops {
		return nil
	}
	for n := nodes - 1; n > 1; n-- {
		if fewer, err := Links(topology, n); err == nil && Diameter(fewer, n) <= hops {
			return fmt.Errorf("a %s of --nodes %d has nodes %d hops apart, and an event goes %d hops at most: --nodes %d would do", topology, nodes, d, hops, n)
		}
	}
	return fmt.Errorf("a %s of --nodes %d has nodes %d hops apart, and an event goes %d hops at most", topology, nodes, d, hops)
}
