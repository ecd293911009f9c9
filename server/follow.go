package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stand is how far something is that takes its time.
type stand struct {
	// line says that while it goes on.
	line string
	// result says how it ended; empty: it goes on. failed tells whether that is not as it
	// should.
	result string
	failed bool
}

const (
	// followInterval is the time between two looks.
	followInterval = time.Second
	// followPatience is how long the server may not answer meanwhile: it may be restarted.
	followPatience = time.Minute
)

// follow prints how far something is until it has ended or ctx is done, and then what
// becomes of it.
func follow(ctx context.Context, out io.Writer, left string, look func(context.Context) (stand, error)) error {
	p := &progress{out: out, live: isTerminal(out)}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for answered := time.Now(); ; {
		s, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			p.end(left)
			return nil
		case err != nil && time.Since(answered) > followPatience:
			p.end("")
			return err
		case err != nil:
			p.say(err.Error())
		case s.failed:
			p.end("")
			return errors.New(s.result)
		case s.result != "":
			p.end(s.result)
			return nil
		default:
			answered = time.Now()
			p.say(s.line)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// progress prints lines that replace each other on a terminal, and follow each other
// elsewhere.
type progress struct {
	out  io.Writer
	live bool
	last string
}

// say prints a line, unless it is the last one again.
func (p *progress) say(line string) {
	switch {
	case line == p.last:
		return
	case p.live:
		fmt.Fprint(p.out, "\r\x1b[K"+line) // to the beginning of the line, and clear it
	default:
		fmt.Fprintln(p.out, line)
	}
	p.last = line
}

// end prints the last line, which may be empty.
func (p *progress) end(line string) {
	if p.live && p.last != "" {
		fmt.Fprintln(p.out)
	}
	if line != "" {
		fmt.Fprintln(p.out, line)
	}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
