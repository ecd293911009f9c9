package exchange

import (
	"fmt"
	"net/http"
	"time"

	"wgsteer/server/internal/web"
)

// healthWithin is how long a healthy server may take to say so.
const healthWithin = 3 * time.Second

// CheckHealth asks the server that listens on the address, host:port, whether it is
// healthy. A host that means every address of the machine is asked on loopback.
func CheckHealth(listen string) error {
	address, err := web.Reach(listen)
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	client := http.Client{Timeout: healthWithin}
	response, err := client.Get("http://" + address + "/healthz")
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("check health: the server answers %s", response.Status)
	}
	return nil
}
