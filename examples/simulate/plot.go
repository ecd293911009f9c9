package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth, plotHeight = 26 * vg.Centimeter, 9 * vg.Centimeter
	legendWidth           = 3.4 * vg.Centimeter
	// detail is how much of the height of a plot a line may be off: what is finer is left
	// out, which keeps the files small.
	detail = 0.002
)

// The gateways' colours can be told apart by those who see few of them (Okabe and Ito).
var (
	colours = []color.Color{
		color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
		color.RGBA{204, 121, 167, 255}, color.RGBA{230, 159, 0, 255},
	}
	grey  = color.Gray{160}
	sans  = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	title = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 12}
)

// svg is the plot of both algorithms side by side, in the same scale.
func (p pair) svg() ([]byte, error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	if err := p.draw(draw.New(canvas)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

func (p pair) draw(all draw.Canvas) error {
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	top := max(p.plain.highest(), p.ours.highest()) * 1.05
	legend := plot.NewLegend()
	legend.TextStyle.Font = sans
	legend.Top, legend.Left, legend.Padding = true, true, vg.Millimeter
	left, err := p.plain.plot("plain", top, nil)
	if err != nil {
		return err
	}
	right, err := p.ours.plot("wgsteer", top, &legend)
	if err != nil {
		return err
	}
	right.Y.Label.Text = ""
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 5 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter}
	canvases := plot.Align([][]*plot.Plot{{left, right}}, tiles, draw.Crop(all, 0, -legendWidth, 0, 0))
	left.Draw(canvases[0][0])
	right.Draw(canvases[0][1])
	legend.Draw(draw.Crop(all, plotWidth-legendWidth+3*vg.Millimeter, 0, 0, -8*vg.Millimeter))
	return nil
}

// highest is the most that a gateway has or should have. What is above it is cut off: at a
// cold start no node has a tunnel.
func (r result) highest() float64 {
	most := 1.0
	for _, s := range r.samples {
		for _, l := range s.gateways {
			most = max(most, float64(l.tunnels), l.target)
		}
	}
	return most
}

// plot draws one algorithm. What is drawn goes into the legend, if there is one.
func (r result) plot(name string, top float64, legend *plot.Legend) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font = name, title
	p.X.Label.Text, p.Y.Label.Text = "time (minutes)", "tunnels of a gateway (nodes)"
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans, sans
	}
	p.X.Tick.Marker = tens{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)

	event := r.scenario.event.Minutes()
	lines := []line{{"it happens", plotter.XYs{{X: event, Y: 0}, {X: event, Y: top}}, grey, 1, dashes(1.5)}}
	for i := range r.samples[len(r.samples)-1].gateways {
		for _, points := range r.targets(i) {
			lines = append(lines, line{"target", points, colours[i%len(colours)], 0.7, dashes(3)})
		}
	}
	for i := range r.samples[len(r.samples)-1].gateways {
		// Those that are drawn later are thinner: lines that lie on each other can be seen.
		lines = append(lines, line{fmt.Sprintf("gw%d", i+1), r.tunnels(i), colours[i%len(colours)], 2.8 - 0.45*float64(i), nil})
	}
	lines = append(lines, line{"no tunnel", r.withoutTunnel(), color.Black, 0.8, nil})
	if err := addLines(p, legend, lines, detail*top); err != nil {
		return nil, err
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, r.scenario.length.Minutes(), 0, top
	return p, nil
}

// line is what is drawn of a name.
type line struct {
	name   string
	points plotter.XYs
	colour color.Color
	width  float64 // in points
	dashes []vg.Length
}

func dashes(points float64) []vg.Length { return []vg.Length{vg.Points(points), vg.Points(points)} }

// addLines draws lines, all but what does not matter. Each name goes into the legend once.
func addLines(p *plot.Plot, legend *plot.Legend, lines []line, off float64) error {
	named := make(map[string]bool)
	for _, l := range lines {
		drawn, err := plotter.NewLine(thin(l.points, off))
		if err != nil {
			return err
		}
		drawn.Color, drawn.Width, drawn.Dashes = l.colour, vg.Points(l.width), l.dashes
		p.Add(drawn)
		if legend != nil && !named[l.name] {
			legend.Add(l.name, drawn)
			named[l.name] = true
		}
	}
	return nil
}

// tunnels are those of a gateway over time, from when it is there.
func (r result) tunnels(gateway int) plotter.XYs {
	var points plotter.XYs
	for _, s := range r.samples {
		if gateway < len(s.gateways) {
			points = append(points, plotter.XY{X: s.at.Minutes(), Y: float64(s.gateways[gateway].tunnels)})
		}
	}
	return points
}

// targets are the target of a gateway over time, in pieces: it has none while it does not
// work.
func (r result) targets(gateway int) []plotter.XYs {
	var pieces []plotter.XYs
	worked := false
	for _, s := range r.samples {
		works := gateway < len(s.gateways) && s.gateways[gateway].works
		if works && !worked {
			pieces = append(pieces, nil)
		}
		if works {
			piece := &pieces[len(pieces)-1]
			*piece = append(*piece, plotter.XY{X: s.at.Minutes(), Y: s.gateways[gateway].target})
		}
		worked = works
	}
	return pieces
}

// withoutTunnel is how many nodes have none over time.
func (r result) withoutTunnel() plotter.XYs {
	var points plotter.XYs
	for _, s := range r.samples {
		points = append(points, plotter.XY{X: s.at.Minutes(), Y: float64(s.without)})
	}
	return points
}

// thin leaves out the points without which the line is off by no more than so much
// (Ramer, Douglas and Peucker).
func thin(points plotter.XYs, off float64) plotter.XYs {
	if len(points) < 3 {
		return points
	}
	first, last := points[0], points[len(points)-1]
	worst, at := 0.0, 0
	for i, p := range points[1 : len(points)-1] {
		straight := first.Y + (last.Y-first.Y)*(p.X-first.X)/(last.X-first.X)
		if d := math.Abs(p.Y - straight); d > worst {
			worst, at = d, i+1
		}
	}
	if worst <= off {
		return plotter.XYs{first, last}
	}
	kept := thin(points[:at+1], off)
	return append(kept[:len(kept)-1:len(kept)-1], thin(points[at:], off)...)
}

// tens marks every ten minutes, and every five without a number.
type tens struct{}

func (tens) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for minute := math.Ceil(least/5) * 5; minute <= most; minute += 5 {
		label := ""
		if math.Mod(minute, 10) == 0 {
			label = fmt.Sprint(minute)
		}
		ticks = append(ticks, plot.Tick{Value: minute, Label: label})
	}
	return ticks
}
