package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds the programs into a folder and returns their paths, which are
// absolute. race makes them end with exit code 66 after a data race. It is called
// from within the module.
func Build(ctx context.Context, folder string, race bool) (server, agent string, err error) {
	if folder, err = filepath.Abs(folder); err != nil {
		return "", "", fmt.Errorf("build: %w", err)
	}
	server, agent = filepath.Join(folder, "wgsteer-server"), filepath.Join(folder, "wgsteer-agent")
	for path, pkg := range map[string]string{server: "wgsteer/server", agent: "wgsteer/agent"} {
		args := []string{"build", "-o", path}
		if race {
			args = append(args, "-race")
		}
		if _, err := output(exec.CommandContext(ctx, "go", append(args, pkg)...)); err != nil {
			return "", "", err
		}
	}
	return server, agent, nil
}
