package main_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
	"go.uber.org/goleak"

	"wgsteer/internal/lab"
)

// serveMQTT, in the environment, makes the test binary an MQTT server at that address:
// a process of its own, because it has to run inside a host of the lab.
const serveMQTT = "AGENT_TEST_MQTT"

func TestMain(m *testing.M) {
	lab.Main()
	if address := os.Getenv(serveMQTT); address != "" {
		if err := serve(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func serve(address string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err := server.AddHook(new(letAllIn), nil); err != nil {
		return err
	}
	if err := server.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: address})); err != nil {
		return err
	}
	if err := server.Serve(); err != nil {
		return err
	}
	<-stop
	return server.Close()
}

// letAllIn is a hook that lets every client do everything.
type letAllIn struct{ mqtt.HookBase }

func (*letAllIn) Provides(b byte) bool {
	return b == mqtt.OnConnectAuthenticate || b == mqtt.OnACLCheck
}
func (*letAllIn) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }
func (*letAllIn) OnACLCheck(*mqtt.Client, string, bool) bool              { return true }
