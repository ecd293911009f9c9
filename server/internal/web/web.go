// Package web runs an HTTP server until it should stop.
package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Server is an HTTP server that listens already and serves when it is run.
type Server struct {
	name     string
	listener net.Listener
	http     http.Server
	log      *slog.Logger
}

// Limits of a connection. Nodes are behind slow lines, and may send a body of 4 KiB
// at a few hundred bytes per second; whoever is slower holds a place for nothing.
const (
	readTimeout    = 30 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// Listen returns a server of this name, for logs and errors, that listens on a TCP
// address, host:port.
func Listen(name, address string, handler http.Handler, log *slog.Logger) (*Server, error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return newServer(name, tcp, handler, log), nil
}

func newServer(name string, listener net.Listener, handler http.Handler, log *slog.Logger) *Server {
	return &Server{name: name, listener: listener, log: log, http: http.Server{
		Handler:     handler,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients cause
	}}
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// stopWithin is how long requests that are under way get to be answered.
const stopWithin = 3 * time.Second

// Run serves requests until ctx is done and those under way are answered.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	s.log.Info(s.name+" listens", "address", s.Addr().String())
	select {
	case err := <-failed:
		return fmt.Errorf("%s: %w", s.name, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := s.http.Shutdown(grace)
	if err != nil {
		err = s.http.Close() // a client that does not read or write holds up nobody
	}
	<-failed
	return err
}
