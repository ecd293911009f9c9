package exchange

import (
	"fmt"
	"net"
	"net/http"
	"time"
)

// healthWithin is how long a healthy server may take to say so.
const healthWithin = 3 * time.Second

// CheckHealth asks the server that listens on the address, host:port, whether it is
// healthy. A host that means every address of the machine is asked on loopback.
func CheckHealth(listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	client := http.Client{Timeout: healthWithin}
	response, err := client.Get("http://" + net.JoinHostPort(host, port) + "/healthz")
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("check health: the server answers %s", response.Status)
	}
	return nil
}
