// Package config reads the config file that a server or an agent is started with.
// The file of a wgkex host loads unchanged; keys of wgsteer's own are additions.
//
// Reading is strict: an unknown key, a wrong type or a value out of range is an
// error that names the line, and nothing starts on a file that has one.
package config
