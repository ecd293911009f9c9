// Package examples holds the reference config file, which the programs print with
// --example-config. The folder's other files are for operators to copy.
package examples

import _ "embed"

// Config is the reference config file: every key, explained.
//
//go:embed wgsteer.yaml
var Config string
