package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The generated section of a page lies between these lines.
const (
	sectionBegin = "<!-- Written by `make simulate`, from here to the end mark. -->\n"
	sectionEnd   = "<!-- end -->\n"
)

// splice puts a section where the page has its generated one.
func splice(page []byte, section string) ([]byte, error) {
	before, rest, begins := bytes.Cut(page, []byte(sectionBegin))
	_, after, ends := bytes.Cut(rest, []byte(sectionEnd))
	if !begins || !ends {
		return nil, errors.New("no marks of a generated section")
	}
	return []byte(string(before) + sectionBegin + section + sectionEnd + string(after)), nil
}

// section is the table and, for every scenario, what happens and its plot.
func section(pairs []pair) string {
	var b strings.Builder
	b.WriteString("\n" + table(pairs) + "\n")
	for _, p := range pairs {
		sc := p.scenario
		fmt.Fprintf(&b, "### %s\n\n%s\n", sc.title, sc.about)
		if sc.auto {
			b.WriteString("`auto_rebalance` is on.\n")
		}
		fmt.Fprintf(&b, "\n![%s: tunnels of each gateway over time](steering/%s.svg)\n\n", sc.title, sc.name)
	}
	return b.String()
}

// table is the results as a Markdown table.
func table(pairs []pair) string {
	rows := [][]string{{
		"scenario", "algorithm", "worst overload", "once settled", "within 5 % (min)",
		"no tunnel after 1, 3, 10 min", "moves", "per node", "forced", "per node",
	}}
	for _, p := range pairs {
		rows = append(rows, p.plain.row(p.scenario.title, "plain"), p.ours.row("", "wgsteer"))
	}
	return markdown(rows)
}

// row is one line of the table.
func (r result) row(title, algorithm string) []string {
	minutes := func(n time.Duration) int { return r.without(n * time.Minute) }
	soon := "never"
	if d, ok := r.nearAfter(); ok {
		soon = fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
	return []string{
		title, algorithm, r.worst(r.scenario.event).overload(), r.worst(r.settledFrom()).overload(), soon,
		fmt.Sprintf("%d, %d, %d", minutes(1), minutes(3), minutes(10)),
		fmt.Sprint(r.moves), fmt.Sprint(r.mostMoves), fmt.Sprint(r.forcedMoves), fmt.Sprint(r.mostForced),
	}
}

// overload says how far above its target a gateway is.
func (l load) overload() string {
	if l.target == 0 {
		return "0"
	}
	return fmt.Sprintf("%.0f (%.1f %%)", l.above(), 100*l.above()/l.target)
}

// markdown lays rows out, the first being the head.
func markdown(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
		for i := 0; n == 0 && i < len(widths); i++ {
			fmt.Fprintf(&b, "| %s ", strings.Repeat("-", widths[i]))
		}
		if n == 0 {
			b.WriteString("|\n")
		}
	}
	return b.String()
}
