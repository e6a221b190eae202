package main

// examples are those of verbs whose own help has none, by path. Tests run each through the parser.
var examples = map[string]string{
	"validate": "meshctl validate node.yaml peers/\nmeshctl validate --json node.yaml",
	"plan":     "meshctl plan -f node.yaml -f peers/ --socket node/control.sock",
	"diff":     "meshctl diff -f node.yaml --socket node/control.sock --exit-code",
	"apply":    "meshctl apply -f node.yaml -f peers/ --socket node/control.sock\nmeshctl apply -f node.yaml --prune",
	"get":      "meshctl get --socket node/control.sock\nmeshctl get --json",
	"export":   "meshctl export --target systemd -f node.yaml -o out",
	"keys":     "meshctl keys MeshNode",
	"schema":   "meshctl schema MeshNode > MeshNode.schema.json",
	"version":  "meshctl version --json",
}
