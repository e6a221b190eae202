package daemon

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MetricsSpec says who may read the counters under /metrics.
type MetricsSpec struct {
	Access    string `yaml:"access,omitempty"`    // loopback, which is the default; token, public, off
	TokenFile string `yaml:"tokenFile,omitempty"` // holds the bearer token of access token; in the node directory unless absolute
}

// The ways in which counters may be read.
const (
	metricsLoopback = "loopback"
	metricsToken    = "token"
	metricsPublic   = "public"
	metricsOff      = "off"
)

// leastToken is how many characters a bearer token has at least.
const leastToken = 16

func (m *MetricsSpec) check() (errs []error) {
	switch {
	case !slices.Contains([]string{"", metricsLoopback, metricsToken, metricsPublic, metricsOff}, m.Access):
		errs = append(errs, fmt.Errorf("spec.metrics.access is %q, want loopback, token, public or off", m.Access))
	case (m.Access == metricsToken) != (m.TokenFile != ""):
		errs = append(errs, errors.New("spec.metrics.tokenFile goes with spec.metrics.access token, and that with it"))
	}
	return errs
}

// token reads the bearer token. It is read at each request, so that it can be changed as files of secrets are.
func (m *MetricsSpec) token(d Dir) (string, error) {
	path := m.TokenFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(string(d), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("spec.metrics.tokenFile: %w", err)
	}
	t := strings.TrimSpace(string(text))
	if len(t) < leastToken {
		return "", fmt.Errorf("spec.metrics.tokenFile: the token has %d characters, want %d or more", len(t), leastToken)
	}
	return t, nil
}

// guardMetrics lets those read the counters whom the configuration in force lets.
func (n *node) guardMetrics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the counters are read with GET", http.StatusMethodNotAllowed)
			return
		}
		m := &n.cfg().Spec.Metrics
		switch m.Access {
		case metricsPublic:
		case metricsOff:
			http.Error(w, "the counters are switched off", http.StatusNotFound)
			return
		case metricsToken:
			want, err := m.token(n.opt.Dir)
			if err != nil {
				n.log.Error("the counters are not read by anybody", "err", err)
				http.Error(w, "the token of this node cannot be read: its log says why", http.StatusServiceUnavailable)
				return
			}
			got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
			if !ok || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
				w.Header().Set("WWW-Authenticate", `Bearer realm="metrics"`)
				http.Error(w, "the counters are for holders of the token in spec.metrics.tokenFile", http.StatusUnauthorized)
				return
			}
		default:
			if !n.fromHere(r) {
				http.Error(w, "the counters are read from the node's own machine: spec.metrics.access widens that", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// fromHere says whether a request is of this machine: by its address, by the name that it asks for, and by no proxy that is not trusted. A proxy on
// this machine passes on what comes from anywhere.
func (n *node) fromHere(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host = strings.Trim(host, "[]"); !strings.EqualFold(host, "localhost") {
		if a, err := netip.ParseAddr(host); err != nil || !a.IsLoopback() {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, h := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "Via"} {
		if len(r.Header.Values(h)) > 0 {
			return false
		}
	}
	return true
}
