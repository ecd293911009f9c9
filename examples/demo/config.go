package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"

	"wgsteer/internal/config"
	"wgsteer/internal/lab"
)

//go:embed demo.yaml
var configText string

// configOf returns the config file of a host, whose folder is given.
func configOf(host, central netip.Addr, folder string) ([]byte, error) {
	parsed, err := template.New("demo.yaml").Parse(configText)
	if err != nil {
		return nil, fmt.Errorf("config of the demo: %w", err)
	}
	var file bytes.Buffer
	err = parsed.Execute(&file, struct {
		ExternalName, Central netip.Addr
		StateDir              string
	}{host, central, filepath.Join(folder, "state")})
	if err != nil {
		return nil, fmt.Errorf("config of the demo: %w", err)
	}
	return file.Bytes(), nil
}

// configName is the name of a host's config file, and programFolder that of the folder
// of its program. Both are in the host's folder.
const (
	configName    = "wgsteer.yaml"
	programFolder = "bin"
)

// install puts a program and its config on a host, and returns the path of the config.
func install(program string, host, central *lab.Host) (path string, err error) {
	file, err := configOf(host.Addr(), central.Addr(), host.Folder())
	if err != nil {
		return "", err
	}
	path = filepath.Join(host.Folder(), configName)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return "", fmt.Errorf("config of host %s: %w", host.Name(), err)
	}
	folder := filepath.Join(host.Folder(), programFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("program of host %s: %w", host.Name(), err)
	}
	if err := os.Symlink(program, filepath.Join(folder, filepath.Base(program))); err != nil {
		return "", fmt.Errorf("program of host %s: %w", host.Name(), err)
	}
	return path, nil
}

// commandOn prepares a command on a host of a lab, which finds the host's program and
// config there.
func commandOn(ctx context.Context, labName, host string, command []string) (*exec.Cmd, error) {
	folder := lab.HostFolder(labName, host)
	environment := []string{"PATH=" + filepath.Join(folder, programFolder) + ":" + os.Getenv("PATH")}
	if path := filepath.Join(folder, configName); fileExists(path) { // nodes have none
		environment = append(environment, "WGSTEER_CONFIG="+path)
	}
	return lab.Command(ctx, labName, host, "env", append(environment, command...)...)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readConfig is the same for the demo itself.
func readConfig() (*config.Config, error) {
	file, err := configOf(netip.IPv4Unspecified(), netip.IPv4Unspecified(), "/")
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(file, config.ForServer)
	if err != nil {
		return nil, fmt.Errorf("config of the demo: %w", err)
	}
	return cfg, nil
}
