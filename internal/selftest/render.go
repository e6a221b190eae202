package selftest

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Line is a Result as one line of text.
func (r Result) Line() string {
	status := "FAIL"
	switch {
	case r.OK:
		status = "ok  "
	case r.Skipped:
		status = "skip"
	}
	took := ""
	if !r.Skipped {
		took = fmt.Sprintf(" (%d ms)", r.Took.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%s  NIP-%02d  %-20s  %s%s", status, r.NIP, r.Name, r.Detail, took)
}

// Total is the last line of a report.
func Total(results []Result) string {
	ok, failed, skipped := 0, 0, 0
	for _, r := range results {
		switch {
		case r.OK:
			ok++
		case r.Skipped:
			skipped++
		default:
			failed++
		}
	}
	return fmt.Sprintf("%d ok, %d failed, %d skipped", ok, failed, skipped)
}

type jsonResult struct {
	NIP    int    `json:"nip"`
	Name   string `json:"name"`
	Status string `json:"status"` // "ok", "failed" or "skipped"
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	TookMS int64  `json:"took_ms"`
}

// Render writes the results: a line a NIP and a total, or one JSON object.
func Render(w io.Writer, results []Result, asJSON bool) error {
	if !asJSON {
		for _, r := range results {
			if _, err := fmt.Fprintln(w, r.Line()); err != nil {
				return fmt.Errorf("write results: %w", err)
			}
		}
		if _, err := fmt.Fprintln(w, Total(results)); err != nil {
			return fmt.Errorf("write results: %w", err)
		}
		return nil
	}
	doc := struct {
		OK      bool         `json:"ok"`
		Results []jsonResult `json:"results"`
	}{ExitCode(results) == 0, make([]jsonResult, len(results))}
	for i, r := range results {
		status := "failed"
		switch {
		case r.OK:
			status = "ok"
		case r.Skipped:
			status = "skipped"
		}
		doc.Results[i] = jsonResult{r.NIP, r.Name, status, r.OK, r.Detail, r.Took.Milliseconds()}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
