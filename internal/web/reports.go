package web

// reportList is what report.list answers, as far as a peer's page shows it.
type reportList struct {
	Cases []struct {
		Peer   string
		Ours   []complaint
		Theirs []struct{ Thread string }
	}
	Findings []finding
}

// complaint is one of ours.
type complaint struct {
	Stage, Outcome, Why string
	First               int64 `json:"first_window"`
	Last                int64 `json:"last_window"`
	At                  int64
}

// finding is a report of somebody's that this node has read.
type finding struct {
	Reporter, Subject, Support string
	Outcome                    string `json:"severity"`
	At                         int64
}

// reports is what there is of complaints between this node and a peer, and what others reported about it.
func (l *look) reports(p *peering) section {
	var list reportList
	data := map[string]any{"Clock": l.clock, "Problem": l.web.ask(l.ctx, "report.list", nil, &list)}
	for _, c := range list.Cases {
		if c.Peer == p.Key {
			data["Ours"], data["Theirs"] = c.Ours, len(c.Theirs)
		}
	}
	var read []finding
	for _, f := range list.Findings {
		if f.Subject == p.Key {
			read = append(read, f)
		}
	}
	data["Read"] = read
	return section{ID: "reports", Template: "reports", Data: data}
}
