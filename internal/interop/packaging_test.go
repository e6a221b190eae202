package interop

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// freePort is a port that nobody has now.
func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// certificate writes a certificate of localhost and its key, and returns who trusts it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "fullchain.pem"), chain, 0o644),
		os.WriteFile(filepath.Join(dir, "privkey.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o644)); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(chain)
	return pool
}

// dialFrom opens a WebSocket from an address of this machine, claiming another in X-Forwarded-For.
func dialFrom(t *testing.T, url, from, claim string, pool *x509.CertPool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(ctx, "tcp4", "127.0.0.1:"+port)
		},
	}}
	opt := &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{}}
	if claim != "" {
		opt.HTTPHeader.Set("X-Forwarded-For", claim)
	}
	c, _, err := websocket.Dial(ctx, url, opt)
	if err != nil {
		return err
	}
	t.Cleanup(func() { c.CloseNow() })
	if err := c.Write(ctx, websocket.MessageText, []byte(`["REQ","a",{"limit":1}]`)); err != nil {
		return err
	}
	for {
		_, text, err := c.Read(ctx)
		if err != nil || strings.HasPrefix(string(text), `["EOSE","a"`) {
			return err
		}
	}
}

// example reads a file of packaging and puts other words in the place of some. Each of them has to stand there.
func example(t *testing.T, path string, swaps ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../packaging", path))
	if err != nil {
		t.Fatal(err)
	}
	out := string(text)
	for i := 0; i < len(swaps); i += 2 {
		if !strings.Contains(out, swaps[i]) {
			t.Fatalf("%s does not stand in %s", swaps[i], path)
		}
		out = strings.ReplaceAll(out, swaps[i], swaps[i+1])
	}
	return out
}

// The proxies' examples, run: clients are served over wss, each counts under its own address, and nobody chooses the address that he counts under.
func TestProxyExamples(t *testing.T) {
	for _, proxy := range []struct {
		name  string
		write func(dir, node string, port int) (config string)
		args  func(dir string) []string
	}{
		{"caddy", func(dir, node string, port int) string {
			return "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n" + example(t, "caddy/Caddyfile",
				"\nrelay.example.org {", fmt.Sprintf("\nlocalhost:%d {\n\tbind 127.0.0.1\n\ttls %s/fullchain.pem %s/privkey.pem", port, dir, dir), "127.0.0.1:7777", node)
		}, func(dir string) []string {
			return []string{"run", "--adapter", "caddyfile", "--config", dir + "/config"}
		}},
		{"nginx", func(dir, node string, port int) string {
			return fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr warn;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path %s/b;\nproxy_temp_path %s/p;\nfastcgi_temp_path %s/f;\nuwsgi_temp_path %s/u;\nscgi_temp_path %s/s;\n", dir, dir, dir, dir, dir, dir) +
				example(t, "nginx/meshnode.conf", "listen 443", fmt.Sprintf("listen 127.0.0.1:%d", port), "relay.example.org;", "localhost;",
					"/etc/letsencrypt/live/relay.example.org", dir, "http://127.0.0.1:7777", "http://"+node) + "}\n"
		}, func(dir string) []string { return []string{"-p", dir, "-c", dir + "/config"} }},
	} {
		t.Run(proxy.name, func(t *testing.T) {
			path, err := exec.LookPath(proxy.name)
			if err != nil {
				t.Skipf("no %s here", proxy.name)
			}
			dir := t.TempDir()
			pool := certificate(t, dir)
			port := freePort(t)
			public := fmt.Sprintf("wss://localhost:%d", port)
			file := filepath.Join(dir, "node.yaml")
			yaml := fmt.Sprintf("apiVersion: fleetmesh.org/v1alpha1\nkind: MeshNode\nmetadata: {name: behind}\nspec:\n  class: edge\n  relay:\n    listen: 127.0.0.1:0\n    publicUrls: [%q]\n    trustedProxies: [127.0.0.1/32]\n    limits: {connectionsPerIp: 2}\n  federation: {descriptorPow: 1}\n", public)
			if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			home := newDir(t)
			mustRun(t, "", "init", "--dir", home, "--manifest", file)
			n := up(t, home)
			if err := os.WriteFile(filepath.Join(dir, "config"), []byte(proxy.write(dir, strings.TrimPrefix(n.url, "ws://"), port)), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(path, proxy.args(dir)...)
			cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
			log := new(logBuffer)
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it may have ended by itself
			until(t, "the proxy serves", 30*time.Second, func() bool {
				conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err == nil {
					conn.Close()
				}
				return err == nil
			})
			for i, c := range []struct {
				url, from, claim string
				ok               bool
			}{
				{public, "127.0.0.2", "", true},
				{public, "127.0.0.2", "203.0.113.1", true},
				{public, "127.0.0.2", "203.0.113.2", false}, // the third of one client, whatever it claims
				{public, "127.0.0.3", "", true},             // another client of the same proxy
				{n.url, "127.0.0.4", "203.0.113.3", true},
				{n.url, "127.0.0.4", "203.0.113.4", true},
				{n.url, "127.0.0.4", "203.0.113.5", false}, // who is no listed proxy is not believed
			} {
				if err := dialFrom(t, c.url, c.from, c.claim, pool); (err == nil) != c.ok {
					t.Errorf("%d: from %s claiming %q: %v, want ok %v\n%s", i, c.from, c.claim, err, c.ok, log)
				}
			}
			if out := mustRun(t, "", "--dir", home, "doctor"); strings.Contains(out, "CRITICAL") || strings.Contains(out, "proxy:") {
				t.Errorf("doctor: %s", out)
			}
		})
	}
}

// release builds what a release holds.
func release(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command("../../packaging/release.sh", "0.0.1", out)
	cmd.Env = append(os.Environ(), "ARCHS=amd64 arm64")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// The Debian package is clean by lintian, holds a unit that systemd understands, and what it installs runs. The container is built of nothing but the
// binaries and runs without root on a root file system that is read-only.
func TestPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the release")
	}
	if host, err := exec.Command("go", "env", "GOHOSTARCH").Output(); err != nil || strings.TrimSpace(string(host)) != "amd64" {
		t.Skip("builds and runs for amd64")
	}
	out := release(t)
	t.Run("deb", func(t *testing.T) { checkDeb(t, filepath.Join(out, "meshnode_0.0.1_amd64.deb")) })
	t.Run("container", func(t *testing.T) { checkContainer(t, filepath.Join(out, "linux-amd64")) })
	t.Run("arm64", func(t *testing.T) { checkARM(t, filepath.Join(out, "meshnode_0.0.1_arm64.deb")) })
}

// checkARM has the node of the arm64 package run under emulation, and does with it what clients do.
func checkARM(t *testing.T, deb string) {
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		t.Skip("no qemu-aarch64-static here")
	}
	root := t.TempDir()
	if text, err := tool(t, "dpkg-deb", "-x", deb, root); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	meshnode, dir, addr := filepath.Join(root, "usr/bin/meshnode"), newDir(t), freeAddr(t)
	if text, err := tool(t, emulator, meshnode, "--dir", dir, "init", "--listen", addr); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, emulator, meshnode, "--dir", dir, "up", "--listen", addr)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cancel()
	until(t, "the arm64 node serves", time.Minute, func() bool {
		resp, err := http.Get("http://" + addr + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	if out := mustRun(t, "", "selftest", "ws://"+addr); !strings.Contains(out, " 0 failed") {
		t.Errorf("%s", out)
	}
}

func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s here", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	return string(text), err
}

func checkDeb(t *testing.T, deb string) {
	root := t.TempDir()
	if text, err := tool(t, "dpkg-deb", "-x", deb, root); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if text, err := tool(t, filepath.Join(root, "usr/bin/meshnode"), "version"); err != nil || !strings.Contains(text, "meshnode 0.0.1") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, file := range []string{"usr/share/man/man1/meshnode.1.gz", "usr/share/bash-completion/completions/meshctl", "usr/share/doc/meshnode/examples/Caddyfile"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	t.Run("lintian", func(t *testing.T) {
		if text, err := tool(t, "lintian", "--fail-on", "error,warning", "--allow-root", deb); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	})
	t.Run("systemd", func(t *testing.T) {
		unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/meshnode.service"))
		if err != nil {
			t.Fatal(err)
		}
		// The binary is looked for where the package would put it.
		file := filepath.Join(t.TempDir(), "meshnode.service")
		text := strings.ReplaceAll(string(unit), "/usr/bin/meshnode", filepath.Join(root, "usr/bin/meshnode"))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if text, err := tool(t, "systemd-analyze", "verify", "--man=no", file); err != nil || strings.Contains(text, "meshnode.service:") {
			t.Errorf("%v\n%s", err, text)
		}
	})
}

func checkContainer(t *testing.T, binaries string) {
	const image = "localhost/meshnode-test"
	if text, err := tool(t, "podman", "build", "-q", "--format", "docker", "-f", "../../packaging/container/Containerfile", "-t", image, binaries); err != nil {
		t.Skipf("podman builds nothing here: %v\n%s", err, text)
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "-f", image).Run() })
	data := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(data), 0o755), os.Chmod(data, 0o777)); err != nil {
		t.Fatal(err)
	}
	text, err := tool(t, "podman", "inspect", "--format", "{{.Config.User}}", image)
	if err != nil || strings.TrimSpace(text) != "65532:65532" {
		t.Errorf("it runs as %q, %v", text, err)
	}
	port := freePort(t)
	name := fmt.Sprintf("meshnode-test-%d", port)
	t.Cleanup(func() { _ = exec.Command("podman", "rm", "-f", name).Run() }) // the test's own context is over then
	run := func(options ...string) (string, error) {
		return tool(t, "podman", slices.Concat(options, []string{"run", "-d", "--replace", "--name", name, "--no-healthcheck", "--read-only", "--network=host",
			"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "-v", data + ":/data", image, "up", "--listen", fmt.Sprintf("127.0.0.1:%d", port)})...)
	}
	if text, err = run(); err != nil {
		text, err = run("--runtime", "runc") // which knows cgroups that the default does not
	}
	if err != nil {
		t.Skipf("podman runs nothing here: %v\n%s", err, text)
	}
	until(t, "the container serves", 60*time.Second, func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/health", port))
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	mustRun(t, "", "event", "--content", "from outside", "--relay", fmt.Sprintf("ws://127.0.0.1:%d", port))
}
