package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"wgsteer/internal/config"
	"wgsteer/internal/lab"
	"wgsteer/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Everything that the server starts ends with it: TestMain looks for goroutines that are
// left.
func TestTheServerStopsAllThatItStarts(t *testing.T) {
	cfg, err := config.Parse([]byte(`
domains: [ff_a]
domain_prefixes: [ff_]
broker_listen: {host: 127.0.0.1}
server:
  mqtt_listen: 127.0.0.1:0
  state_dir: `+t.TempDir()+`
`), config.ForServer)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Server.HTTPListen, cfg.Server.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	log := &logtest.Buffer{}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- run(ctx, cfg, nil, slog.New(slog.NewTextHandler(log, nil))) }()
	address := ""
	within, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := lab.Eventually(within, func() error {
		_, after, ok := strings.Cut(log.String(), `msg="MQTT server listens" address=`)
		if !ok {
			return fmt.Errorf("the MQTT server does not listen:\n%s", log)
		}
		address, _, _ = strings.Cut(after, "\n")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address) // a client that says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
