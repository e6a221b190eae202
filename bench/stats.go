package main

import (
	"math"
	"slices"
	"time"
)

// median is the middle value, or the mean of the two in the middle; NaN of nothing. NaNs do not count.
func median(values []float64) float64 {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// percentile is the least of the sorted durations that at least the share p of them does not exceed; 0 of nothing.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// pairRatio is the median of a[i]/b[i] over the rounds that both have. Rounds in which b is not above 0 do not count.
func pairRatio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 && !math.IsNaN(a[i]) {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return median(ratios)
}

// latencies adds the p50 and p99 of durations to a sample, in microseconds.
func (s *sample) latencies(d []time.Duration) {
	slices.Sort(d)
	s.set("p50_us", float64(percentile(d, 0.50))/1e3)
	s.set("p99_us", float64(percentile(d, 0.99))/1e3)
}
