package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// OfType is what was counted for a business type since the start.
type OfType struct {
	Submitted float64
	Runs      map[worker.Outcome]float64
	Late      Distribution                     // lateness
	Parts     [len(latenessParts)]Distribution // of lateness, in the order of LatenessParts
	Ran       Distribution                     // time of a run
}

// LatenessParts names the parts of lateness in their order.
func LatenessParts() []string { return slices.Clone(latenessParts[:]) }

// Distribution is a histogram: how many values there were, their sum in seconds, and how many were no greater than each bound.
type Distribution struct {
	Count  uint64
	Sum    float64
	Bounds []float64
	Below  []uint64 // as many as Bounds
}

// OfType reads the series of a business type.
func (m *Metrics) OfType(b task.BizType) (o OfType) {
	s := m.of(b)
	o.Submitted, o.Runs = value(s.submitted), make(map[worker.Outcome]float64, len(s.runs))
	started := false
	for outcome, c := range s.runs {
		o.Runs[outcome] = value(c)
		started = started || o.Runs[outcome] > 0
	}
	if !started { // do not make its histograms
		return o
	}
	o.Late, o.Ran = distribution(s.lateness()), distribution(s.run())
	for i, part := range s.parts() {
		o.Parts[i] = distribution(part)
	}
	return o
}

func value(c prometheus.Counter) float64 {
	var read dto.Metric
	_ = c.Write(&read) // a counter's never fails
	return read.GetCounter().GetValue()
}

func distribution(o prometheus.Observer) (d Distribution) {
	var read dto.Metric
	h, ok := o.(prometheus.Histogram)
	if !ok || h.Write(&read) != nil {
		return d
	}
	d.Count, d.Sum = read.GetHistogram().GetSampleCount(), read.GetHistogram().GetSampleSum()
	for _, b := range read.GetHistogram().GetBucket() {
		d.Bounds, d.Below = append(d.Bounds, b.GetUpperBound()), append(d.Below, b.GetCumulativeCount())
	}
	return d
}
