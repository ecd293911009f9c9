package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"

	"wgsteer/internal/config"
	"wgsteer/internal/lab"
)

//go:embed demo.yaml
var configText string

// configOf returns the config file of a host.
func configOf(host, central netip.Addr) ([]byte, error) {
	parsed, err := template.New("demo.yaml").Parse(configText)
	if err != nil {
		return nil, fmt.Errorf("config of the demo: %w", err)
	}
	var file bytes.Buffer
	err = parsed.Execute(&file, struct{ ExternalName, Central netip.Addr }{host, central})
	if err != nil {
		return nil, fmt.Errorf("config of the demo: %w", err)
	}
	return file.Bytes(), nil
}

// writeConfig writes the config of a host into its folder.
func writeConfig(host, central *lab.Host) (path string, err error) {
	file, err := configOf(host.Addr(), central.Addr())
	if err != nil {
		return "", err
	}
	path = filepath.Join(host.Folder(), "wgsteer.yaml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return "", fmt.Errorf("config of host %s: %w", host.Name(), err)
	}
	return path, nil
}

// readConfig is the same for the demo itself.
func readConfig() (*config.Config, error) {
	file, err := configOf(netip.IPv4Unspecified(), netip.IPv4Unspecified())
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(file, config.ForServer)
	if err != nil {
		return nil, fmt.Errorf("config of the demo: %w", err)
	}
	return cfg, nil
}
