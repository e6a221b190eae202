package main

// examples are those of verbs whose own help has none, by path. Tests run each through the parser.
var examples = map[string]string{
	"status":  "meshnode status\nmeshnode status --json",
	"stop":    "meshnode stop\nmeshnode stop --dir /var/lib/meshnode",
	"digest":  "meshnode digest",
	"version": "meshnode version --json",

	"bridge sync":   `meshnode bridge sync --relay wss://relay.example.org --filter '{"kinds":[1]}'`,
	"bridge run":    "meshnode bridge run --dir /var/lib/meshnode",
	"bridge status": "meshnode bridge status",
	"count":         `meshnode count --relay ws://127.0.0.1:7777 '{"kinds":[1]}'`,

	"store fingerprint": "meshnode store fingerprint\nmeshnode store fingerprint '{\"kinds\":[1],\"since\":1700000000}'",
	"store stats":       "meshnode store stats --json",
	"store check":       "meshnode stop\nmeshnode store check",
	"store rebuild":     "meshnode stop\nmeshnode store rebuild",
	"store compact":     "meshnode stop\nmeshnode store compact",
	"store refused":     "meshnode stop\nmeshnode store refused --json",

	"key show":      "meshnode key\nmeshnode key show --json",
	"key import":    "meshnode key import nsec.txt",
	"key export":    "meshnode key export > node.nsec",
	"key rotate":    "meshnode key rotate agreement",
	"key protect":   "MESHNODE_PASSPHRASE_FILE=/etc/meshnode/passphrase meshnode key protect",
	"key unprotect": "MESHNODE_PASSPHRASE_FILE=/etc/meshnode/passphrase meshnode key unprotect",
	"key attach":    "meshnode key attach /run/meshnode/agent.sock",
	"key backup":    "meshnode key backup node-backup.tar",
	"key restore":   "meshnode key restore --dir /var/lib/meshnode node-backup.tar",

	"did resolve":   "meshnode did resolve did:nostr:…",
	"id":            "meshnode id\nmeshnode id --json",
	"invite create": "meshnode invite create",
	"invite list":   "meshnode invite list --json",
	"invite revoke": "meshnode invite revoke INVITATION",
	"coverage take": "meshnode coverage\nmeshnode coverage take --json",
	"known":         "meshnode known --json",

	"peer list":  "meshnode peer list\nmeshnode peer list --json",
	"peer show":  "meshnode peer show did:nostr:…",
	"peer log":   "meshnode peer log\nmeshnode peer log did:nostr:…",
	"peer end":   "meshnode peer end --reason 'moving house' did:nostr:…",
	"peer known": "meshnode peer known",
	"peer ask":   "meshnode peer ask",

	"blobs status": "meshnode blobs status",

	"grant list": "meshnode grant list --json",
	"grant show": "meshnode grant show did:nostr:…",

	"cluster status": "meshnode cluster status",
	"cluster stop":   "meshnode cluster stop",
	"cluster heal":   "meshnode cluster heal 2",
}
