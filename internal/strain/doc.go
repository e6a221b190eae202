// Package strain is what a node knows about its own load: the pressure against the total
// that its operator declared, the shedding ladder with its common release, what amend_down
// leaves of a grant, and the directions that stress came from, with the reserves that follow.
// All of it is the node's own arithmetic over its own meters. Nothing here is a finding, and
// a strain record never crosses the wire. Protocol text: § Grants & receipts, "The node has
// a ceiling too" and "What a node does with stress it survived". Vectors: spec/vectors/strain.
package strain
