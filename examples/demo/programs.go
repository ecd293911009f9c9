package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"wgsteer/internal/lab"
)

// programs are the paths of what the demo shows.
type programs struct{ server, agent string }

// findPrograms finds the programs in the folder, and builds them when one is missing.
func findPrograms(ctx context.Context, folder string) (programs, error) {
	p := programs{
		server: filepath.Join(folder, "wgsteer-server"),
		agent:  filepath.Join(folder, "wgsteer-agent"),
	}
	_, noServer := os.Stat(p.server)
	_, noAgent := os.Stat(p.agent)
	if noServer == nil && noAgent == nil {
		return p, nil
	}
	fmt.Printf("building the programs into %s\n", folder)
	var err error
	p.server, p.agent, err = lab.Build(ctx, folder, false)
	return p, err
}
