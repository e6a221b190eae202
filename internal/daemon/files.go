package daemon

import (
	"log/slog"

	"fleetmesh.org/fleetmesh/internal/relay"
)

// filesOfOurOwn is how many open files a node keeps for its store, its peers and itself.
const filesOfOurOwn = 128

// fitFiles lowers the number of connections to what the limit of open files allows, with a warning that names the knob.
func fitFiles(l *relay.Limits, log *slog.Logger) {
	const defaultConnections = 8192
	limit := raiseFileLimit()
	want := l.MaxConnections
	if want == 0 {
		want = defaultConnections
	}
	if limit == 0 || limit-filesOfOurOwn >= want {
		return
	}
	l.MaxConnections = max(16, limit-filesOfOurOwn)
	log.Warn("few open files are allowed, so fewer clients are: raise the limit (ulimit -n, LimitNOFILE=) for more",
		"openFiles", limit, "maxConnections", l.MaxConnections, "sufficient", want+filesOfOurOwn)
}
