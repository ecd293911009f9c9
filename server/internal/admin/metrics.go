package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/steering"
)

// workerMetrics are gauges of every worker that is configured or was heard of, and of every
// domain.
type workerMetrics struct {
	table   Table
	gauges  []workerGauge
	domains *prometheus.Desc
}

type workerGauge struct {
	desc  *prometheus.Desc
	value func(steering.State) float64
}

func newWorkerMetrics(table Table) *workerMetrics {
	m := &workerMetrics{table: table, domains: prometheus.NewDesc("wgsteer_domain_workers",
		"Workers that nodes of the domain can be sent to.", []string{"domain"}, nil)}
	add := func(name, help string, value func(steering.State) float64) {
		m.gauges = append(m.gauges, workerGauge{prometheus.NewDesc("wgsteer_worker_"+name, help, []string{"worker"}, nil), value})
	}
	add("online", "Whether the worker is online.", func(s steering.State) float64 { return oneIf(s.Online) })
	add("weight", "The worker's share of the peers, relative to other workers' weights.", func(s steering.State) float64 { return float64(s.Weight) })
	add("reported_peers", "The worker's connected peers, as last reported, over all domains.", func(s steering.State) float64 { return float64(s.Reported) })
	add("in_flight", "Nodes that were sent to the worker, less those told to leave, and that its report cannot tell yet.", func(s steering.State) float64 { return float64(s.InFlight) })
	add("silent", "Whether the worker is online and does not report.", func(s steering.State) float64 { return oneIf(s.Silent) })
	add("suspect", "Whether nodes are sent to the worker in vain.", func(s steering.State) float64 { return oneIf(s.Suspect) })
	add("drained", "Whether an operator has the worker get no new nodes.", func(s steering.State) float64 { return oneIf(s.Drained) })
	return m
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// Describe sends what Collect will.
func (m *workerMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.domains
	for _, g := range m.gauges {
		to <- g.desc
	}
}

// Collect sends the gauges of all workers and domains.
func (m *workerMetrics) Collect(to chan<- prometheus.Metric) {
	for domain, workers := range m.table.Offering() {
		to <- prometheus.MustNewConstMetric(m.domains, prometheus.GaugeValue, float64(workers), domain)
	}
	for _, s := range m.table.States() {
		for _, g := range m.gauges {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(s), s.Worker)
		}
	}
}
