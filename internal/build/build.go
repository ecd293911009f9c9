// Package build tells which build of wgsteer is running.
package build

import "runtime/debug"

// version is set by the linker, see the Makefile.
var version string

// Version returns the version of the running program: what the Makefile took from
// git, else the commit that the Go tool recorded, else "unknown".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}
