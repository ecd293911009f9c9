package config

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// file is the config file as it is written.
type file struct {
	Domains        []text       `yaml:"domains"`
	DomainPrefixes []text       `yaml:"domain_prefixes"`
	Workers        namedWorkers `yaml:"workers"`
	ExternalName   text         `yaml:"externalName"`
	MQTT           struct {
		BrokerURL  text    `yaml:"broker_url"`
		BrokerPort number  `yaml:"broker_port"`
		Username   text    `yaml:"username"`
		Password   text    `yaml:"password"`
		Keepalive  number  `yaml:"keepalive"`
		TLS        boolean `yaml:"tls"`
	} `yaml:"mqtt"`
	BrokerListen struct {
		Host text   `yaml:"host"`
		Port number `yaml:"port"`
	} `yaml:"broker_listen"`
	LoggingConfig any `yaml:"logging_config"`
	Server        struct {
		MQTTListen      text     `yaml:"mqtt_listen"`
		AdminListen     text     `yaml:"admin_listen"`
		RateLimit       number   `yaml:"rate_limit"`
		StateDir        text     `yaml:"state_dir"`
		KeyTTL          duration `yaml:"key_ttl"`
		SilentAfter     duration `yaml:"silent_after"`
		Settle          duration `yaml:"settle"`
		RetryWindow     duration `yaml:"retry_window"`
		StickyTolerance percents `yaml:"sticky_tolerance"`
		AutoRebalance   number   `yaml:"auto_rebalance"`
	} `yaml:"server"`
	Agent struct {
		Worker         text     `yaml:"worker"`
		ReportInterval duration `yaml:"report_interval"`
		SweepInterval  duration `yaml:"sweep_interval"`
		StaleAfter     duration `yaml:"stale_after"`
		UnusedAfter    duration `yaml:"unused_after"`
		LinkAddress    text     `yaml:"link_address"`
	} `yaml:"agent"`
}

// decode reads the file strictly.
func decode(content []byte) (f file, err error) {
	// The library panics on some broken files (an unknown tag before a list, as of
	// v1.19.2): for an operator that is a file that cannot be read, not a crash.
	defer func() {
		if cause := recover(); cause != nil {
			f, err = file{}, problemf(position{}, "not YAML that can be read: %v", cause)
		}
	}()
	tree, err := parser.ParseBytes(content, 0)
	if err != nil {
		return file{}, located(err)
	}
	if len(tree.Docs) > 1 && tree.Docs[1].Body != nil {
		return file{}, problemf(positionOf(tree.Docs[1].Body), "a second YAML document: want one")
	}
	err = yaml.NewDecoder(bytes.NewReader(content), yaml.Strict()).Decode(&f)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the file holds no document, and so no key
		return file{}, located(err)
	}
	return f, nil
}

// located turns an error of the YAML library into a problem at a place.
func located(err error) error {
	var ours *problem
	if errors.As(err, &ours) {
		return ours
	}
	var theirs yaml.Error
	if !errors.As(err, &theirs) {
		return err
	}
	var at position
	if token := theirs.GetToken(); token != nil {
		at = position{line: token.Position.Line, column: token.Position.Column}
	}
	message := theirs.GetMessage()
	if name, unknown := strings.CutPrefix(message, "unknown field "); unknown {
		message = "unknown key " + name + ": " + cmp.Or(notHere[strings.Trim(name, `"`)], "take it out; --example-config prints all that there are")
	}
	return problemf(at, "%s", message)
}

// notHere says more on keys that newer versions of wgkex have.
var notHere = map[string]string{
	"parker":                  "wgsteer does not do Parker, stay with wgkex for it",
	"netbox":                  "wgsteer does not do Parker, stay with wgkex for it",
	"broker_signing_key":      "wgsteer does not sign its answers",
	"sticky_worker_tolerance": "here it is server.sticky_tolerance, like 10%",
	"id":                      "wgsteer does not do Parker, take it out if you don't either",
	"pop":                     "here it is location",
}
