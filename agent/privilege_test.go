package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wgsteer/internal/lab"
)

// How setpriv takes privileges away. The socket of a userspace WireGuard belongs to
// root: only there root's user id is kept, without any of root's other capabilities.
var (
	asNobody     = []string{"--reuid", "65534", "--regid", "65534", "--clear-groups"}
	withNetAdmin = []string{"--inh-caps", "-all,+net_admin", "--ambient-caps", "-all,+net_admin", "--bounding-set", "-all,+net_admin"}
)

func TestCAPNETADMINIsEnough(t *testing.T) {
	lab.Need(t, "setpriv")
	s := newSite(t)
	must(s.gateway.Gateway(s.ctx, welt))(t)
	s.startBroker()
	o := s.observe()
	s.letNobodyRunTheAgent()
	args := withNetAdmin
	if s.lab.KernelWireGuard() {
		args = append(args, asNobody...)
	}
	args = append(args, "env", "GORACE=atexit_sleep_ms=0", s.agentBin, "--config", s.config())
	must(s.gateway.Start(s.ctx, "setpriv", args...))(t)
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })
	key := newKey()
	o.publish("wireguard/ffmuc_welt/all", key.String())
	s.eventually(func() error { return s.hasAll(welt, key) })
}

func TestWithoutCAPNETADMINItSaysSo(t *testing.T) {
	lab.Need(t, "setpriv")
	s := newSite(t)
	s.letNobodyRunTheAgent()
	_, err := s.gateway.Run(s.ctx, "setpriv", append(asNobody, s.agentBin, "--config", s.config())...)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "CAP_NET_ADMIN is missing") {
		t.Errorf("error %v", err)
	}
}

// letNobodyRunTheAgent opens the test's folder, where the agent is.
func (s *site) letNobodyRunTheAgent() {
	s.t.Helper()
	folder := filepath.Dir(s.agentBin)
	check(s.t, os.Chmod(folder, 0o755))
	check(s.t, os.Chmod(filepath.Dir(folder), 0o755))
}
