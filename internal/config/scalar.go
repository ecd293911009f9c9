package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// position is a place in the config file. Both count from 1; zero is no place.
type position struct{ line, column int }

func positionOf(node ast.Node) position {
	at := node.GetToken().Position
	return position{line: at.Line, column: at.Column}
}

// problem is something wrong at a place in the file.
type problem struct {
	at   position
	text string
}

func (p *problem) Error() string {
	if p.at == (position{}) {
		return p.text
	}
	return fmt.Sprintf("%d:%d: %s", p.at.line, p.at.column, p.text)
}

func problemf(at position, format string, args ...any) *problem {
	return &problem{at: at, text: fmt.Sprintf(format, args...)}
}

// The scalars of the file know where they stand, so that a value that turns out
// to be wrong later still names its line. They take no value of another type: a
// password 0123 that YAML reads as a number would silently become another one. A
// key that is there but empty is like one that is not there.

type text struct {
	value string
	at    position
}

func (t *text) UnmarshalYAML(node ast.Node) error {
	t.at = positionOf(node)
	switch n := node.(type) {
	case *ast.StringNode:
		t.value = n.Value
	case *ast.LiteralNode:
		t.value = n.Value.Value
	case *ast.NullNode:
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return problemf(t.at, "want text: write %s in quotes", node.GetToken().Value)
	default:
		return problemf(t.at, "want text")
	}
	return nil
}

type number struct {
	value int64
	set   bool
	at    position
}

func (n *number) UnmarshalYAML(node ast.Node) error {
	n.at = positionOf(node)
	var err error
	switch node := node.(type) {
	case *ast.IntegerNode:
		n.value, err = strconv.ParseInt(fmt.Sprint(node.Value), 10, 64)
	case *ast.StringNode: // wgkex takes a number in quotes, too
		n.value, err = strconv.ParseInt(node.Value, 10, 64)
	case *ast.NullNode:
		return nil
	default:
		return problemf(n.at, "want a whole number")
	}
	if err != nil {
		return problemf(n.at, "want a whole number")
	}
	n.set = true
	return nil
}

// within returns the number, or the default when it is not set, or a problem when
// it is out of range.
func (n number) within(key string, low, high, byDefault int64) (int64, error) {
	switch {
	case !n.set:
		return byDefault, nil
	case n.value < low || n.value > high:
		return 0, problemf(n.at, "%s is %d, want %d to %d", key, n.value, low, high)
	}
	return n.value, nil
}

// percents are a whole number of them, with or without the sign.
type percents struct{ number }

func (p *percents) UnmarshalYAML(node ast.Node) error {
	p.at = positionOf(node)
	switch n := node.(type) {
	case *ast.StringNode:
		digits, ok := strings.CutSuffix(n.Value, "%")
		var err error
		if p.value, err = strconv.ParseInt(digits, 10, 64); err != nil || !ok {
			return problemf(p.at, "want whole percents, like 10%%")
		}
	case *ast.FloatNode:
		return problemf(p.at, "want whole percents, like 10%%")
	default:
		return p.number.UnmarshalYAML(node)
	}
	p.set = true
	return nil
}

type boolean struct{ value bool }

func (b *boolean) UnmarshalYAML(node ast.Node) error {
	switch n := node.(type) {
	case *ast.BoolNode:
		b.value = n.Value
	case *ast.NullNode:
	default:
		return problemf(positionOf(node), "want true or false")
	}
	return nil
}

type duration struct {
	value time.Duration
	set   bool
	at    position
}

func (d *duration) UnmarshalYAML(node ast.Node) error {
	d.at = positionOf(node)
	switch n := node.(type) {
	case *ast.StringNode:
		var err error
		if d.value, err = time.ParseDuration(n.Value); err != nil {
			return problemf(d.at, "want a time with its unit, like 90s, 10m or 3h")
		}
	case *ast.NullNode:
		return nil
	default:
		return problemf(d.at, "want a time with its unit, like 90s, 10m or 3h")
	}
	d.set = true
	return nil
}

// within is number.within for a time.
func (d duration) within(key string, low, high, byDefault time.Duration) (time.Duration, error) {
	switch {
	case !d.set:
		return byDefault, nil
	case d.value < low || d.value > high:
		return 0, problemf(d.at, "%s is %v, want %v to %v", key, d.value, low, high)
	}
	return d.value, nil
}

// namedWorkers are the workers of the file in its order.
type namedWorkers []namedWorker

type namedWorker struct {
	name     string
	at       position
	weight   number
	location text
}

func (w *namedWorkers) UnmarshalYAML(node ast.Node) error {
	if _, empty := node.(*ast.NullNode); empty {
		return nil
	}
	entries, ok := node.(ast.MapNode)
	if !ok {
		return problemf(positionOf(node), "want workers by their names")
	}
	for each := entries.MapRange(); each.Next(); {
		worker := namedWorker{at: positionOf(each.Key())}
		var name text
		if err := name.UnmarshalYAML(each.Key().(ast.Node)); err != nil {
			return err
		}
		worker.name = name.value
		if err := worker.unmarshal(each.Value()); err != nil {
			return err
		}
		*w = append(*w, worker)
	}
	return nil
}

func (w *namedWorker) unmarshal(node ast.Node) error {
	if _, empty := node.(*ast.NullNode); empty {
		return nil
	}
	entries, ok := node.(ast.MapNode)
	if !ok {
		return problemf(positionOf(node), "want the keys of worker %q", w.name)
	}
	for each := entries.MapRange(); each.Next(); {
		var err error
		switch key := each.Key().String(); key {
		case "weight":
			err = w.weight.UnmarshalYAML(each.Value())
		case "location":
			err = w.location.UnmarshalYAML(each.Value())
		default:
			err = problemf(positionOf(each.Key()), "unknown key %q of worker %q%s", key, w.name, notHere[key])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
