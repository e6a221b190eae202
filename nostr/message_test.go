package nostr

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestCase9ShapeOfTheFrame(t *testing.T) {
	want := &ReqMessage{SubID: "w", Filters: []Filter{filterOf(t, `{"limit":1}`)}}
	for _, s := range []string{
		" \r\n\t[\"REQ\",\"w\",{\"limit\":1}]   ",
		"\ufeff[\"REQ\",\"w\",{\"limit\":1}]",
		"[ \"REQ\"\n,\t\"w\" , { \"limit\" : 1 } ]\r\n",
	} {
		got, err := ParseClientMessage([]byte(s))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	two := `["REQ","w",{"limit":1}]`
	for _, s := range []string{"", "{}", "[]", "null", `["FOO","x"]`, strings.Repeat("[", 1<<20), `["REQ"`, `[1]`, `[["REQ"]]`, two + two, two + "\n" + two, two + ",", two + "x", `"REQ"`, "\ufeff", "[\ufeff\"REQ\"]", `["FOO\u0000",1]`} {
		got, err := ParseClientMessage([]byte(s))
		var m *MessageError
		if got != nil || !errors.As(err, &m) || m.SubID != "" || m.Reason == "" {
			t.Errorf("%.80q: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{two + two, `["FOO","x"]`, `["req","x",{}]`} {
		var m *MessageError
		if _, err := ParseClientMessage([]byte(s)); !errors.As(err, &m) || m.Type != "" {
			t.Errorf("%q: %+v", s, m)
		}
	}
}

func TestMessageErrorNamesTheSubscription(t *testing.T) {
	long := strings.Repeat("é", 65)
	deep := strings.Repeat("[", 1<<20)
	for s, want := range map[string]MessageError{
		`["REQ","s",{"kinds":["x"]}]`:          {Type: "REQ", SubID: "s"},
		`["REQ","s"]`:                          {Type: "REQ", SubID: "s"},
		`["REQ","s",{}`:                        {Type: "REQ", SubID: "s"},
		`["REQ","s",{},]`:                      {Type: "REQ", SubID: "s"},
		`["REQ","s",[]]`:                       {Type: "REQ", SubID: "s"},
		`["REQ","s",{},5]`:                     {Type: "REQ", SubID: "s"},
		`["REQ","s",{"#ab":["x"]}]`:            {Type: "REQ", SubID: "s"},
		`["REQ","s",` + deep:                   {Type: "REQ", SubID: "s"},
		`["REQ","s",{"x":` + deep:              {Type: "REQ", SubID: "s"},
		`["REQ","",{}]`:                        {Type: "REQ"},
		`["REQ"]`:                              {Type: "REQ"},
		`["REQ",7,{}]`:                         {Type: "REQ"},
		`["REQ","` + long + `",{}]`:            {Type: "REQ", SubID: long},
		`["CLOSE","` + long + `"]`:             {Type: "CLOSE", SubID: long},
		`["CLOSE","s",1]`:                      {Type: "CLOSE", SubID: "s"},
		`["COUNT","q\"",{"x":1}]`:              {Type: "COUNT", SubID: `q"`},
		`["COUNT","q"]`:                        {Type: "COUNT", SubID: "q"},
		`["NEG-OPEN","n",{}]`:                  {Type: "NEG-OPEN", SubID: "n"},
		`["NEG-OPEN","n",{},"6"]`:              {Type: "NEG-OPEN", SubID: "n"},
		`["NEG-OPEN","n",{},"zz"]`:             {Type: "NEG-OPEN", SubID: "n"},
		`["NEG-OPEN","n",{"kinds":[-1]},"61"]`: {Type: "NEG-OPEN", SubID: "n"},
		`["NEG-MSG","n"]`:                      {Type: "NEG-MSG", SubID: "n"},
		`["NEG-MSG","n",5]`:                    {Type: "NEG-MSG", SubID: "n"},
		`["NEG-CLOSE","n","x"]`:                {Type: "NEG-CLOSE", SubID: "n"},
		`["REQ","s"` + strings.Repeat(`,{}`, MaxFilters+1) + `]`: {Type: "REQ", SubID: "s"},
	} {
		got, err := ParseClientMessage([]byte(s))
		var m *MessageError
		if got != nil || !errors.As(err, &m) || m.Type != want.Type || m.SubID != want.SubID {
			t.Errorf("%.80s: %+v, %+v", s, got, err)
		} else if strings.Contains(m.Reason, ErrSyntax.Error()) || len(m.Reason) > 200 {
			t.Errorf("%.80s: the reason is %q", s, m.Reason)
		}
	}
	for s, want := range map[string]bool{`["REQ","s",{"&t":["x"]}]`: true, `["REQ","s",{"kinds":[-1]}]`: false} {
		var m *MessageError
		if _, err := ParseClientMessage([]byte(s)); !errors.As(err, &m) || m.Unsupported != want {
			t.Errorf("%s: %+v", s, err)
		}
	}
	if _, err := ParseClientMessage([]byte(`["REQ","` + strings.Repeat("é", 64) + `",{}]`)); err != nil {
		t.Errorf("64 characters: %v", err)
	}
}

func TestParseClientMessages(t *testing.T) {
	f := filterOf(t, `{"kinds":[1]}`)
	for s, want := range map[string]ClientMessage{
		`["REQ","s",{"kinds":[1]},{"kinds":[1]}]`: &ReqMessage{"s", []Filter{f, f}},
		`["COUNT","q",{"kinds":[1]}]`:             &CountMessage{"q", []Filter{f}},
		`["CLOSE","s"]`:                           &CloseMessage{"s"},
		`["NEG-OPEN","n",{"kinds":[1]},"6100Ff"]`: &NegOpenMessage{"n", f, []byte{0x61, 0, 0xff}},
		`["NEG-MSG","n",""]`:                      &NegMsgMessage{"n", []byte{}},
		`["NEG-CLOSE","n"]`:                       &NegCloseMessage{"n"},
		`["\u0052EQ","s",{"kinds":[1]}]`:          &ReqMessage{"s", []Filter{f}},
	} {
		b := []byte(s)
		got, err := ParseClientMessage(b)
		clear(b) // nothing may point into the frame
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
}

func TestParseClientEvents(t *testing.T) {
	e := &Event{CreatedAt: caseTime, Kind: 1, Tags: []Tag{{"t", "x"}}, Content: "é"}
	if err := e.Sign(secret(3)); err != nil {
		t.Fatal(err)
	}
	good := string(e.JSON())
	id := e.ID.String()
	for s, want := range map[string]string{
		`["EVENT",` + good + `]`:                                               "",
		" [ \"EVENT\" , " + good + " ] \n":                                     "",
		`["EVENT",` + good + `,1]`:                                             "after the end",
		`["EVENT",` + good + `]["EVENT",` + good + `]`:                         "after the end",
		`["EVENT",` + good:                                                     "not closed",
		`["EVENT",` + good[:len(good)-1] + `]`:                                 "expected",
		`["EVENT",` + strings.Replace(good, "é", "e", 1) + `]`:                 "not the hash",
		`["EVENT",` + strings.Replace(good, `"kind":1`, `"kind":"1"`, 1) + `]`: "kind",
		`["EVENT",[` + good + `]]`:                                             "expected",
	} {
		for _, label := range []string{"EVENT", "AUTH"} {
			b := []byte(strings.ReplaceAll(s, "EVENT", label))
			m, err := ParseClientMessage(b)
			clear(b)
			if err != nil || m.Label() != label {
				t.Fatalf("%s: %v", s, err)
			}
			var got EventMessage
			switch m := m.(type) {
			case *EventMessage:
				got = *m
			case *AuthMessage:
				got = EventMessage(*m)
			}
			if got.RawID != id || (want == "") != (got.Err == nil) || (want == "") != (got.Event != nil) {
				t.Fatalf("%s: %+v", s, got)
			}
			if want == "" && string(got.Event.JSON()) != good {
				t.Errorf("%s: %s", s, got.Event.JSON())
			}
			if want != "" && !strings.Contains(got.Err.Error(), want) {
				t.Errorf("%s: %v", s, got.Err)
			}
		}
	}
	for _, s := range []string{`["EVENT"]`, `["EVENT"`, `["EVENT",`, `["EVENT",]`, `["EVENT",{}]`, `["EVENT",null]`, `["EVENT" {}]`} {
		m, err := ParseClientMessage([]byte(s))
		if got, ok := m.(*EventMessage); err != nil || !ok || got.Err == nil || got.RawID != "" {
			t.Errorf("%s: %+v, %v", s, m, err)
		}
	}
}

func TestParseServerMessages(t *testing.T) {
	for s, want := range map[string]ServerMessage{
		`["OK","i",true,""]`:                               &ServerOK{"i", true, ""},
		`["OK","i",false,"invalid: x"]`:                    &ServerOK{"i", false, "invalid: x"},
		`["OK","i",true]`:                                  &ServerOK{"i", true, ""},
		`["EOSE","s"]`:                                     &ServerEOSE{SubID: "s"},
		`["EOSE","s",["finish",1,{"a":[]},"new"]]`:         &ServerEOSE{"s", []string{"finish", "new"}},
		`["EOSE","s",7]`:                                   &ServerEOSE{SubID: "s"},
		`["CLOSED","s","error: x"]`:                        &ServerClosed{"s", "error: x"},
		`["CLOSED","s"]`:                                   &ServerClosed{"s", ""},
		`["NOTICE","x",{"more":[1]}]`:                      &ServerNotice{"x"},
		`["AUTH","c"]`:                                     &ServerAuth{"c"},
		`["COUNT","q",{"count":5}]`:                        &ServerCount{QueryID: "q", Count: 5},
		`["COUNT","q",{"approximate":true,"count":0}]`:     &ServerCount{QueryID: "q", Approximate: true},
		`["COUNT","q",{"count":1,"x":null}]`:               &ServerCount{QueryID: "q", Count: 1},
		`["NEG-MSG","n","61"]`:                             &ServerNegMsg{"n", []byte{0x61}},
		`["NEG-ERR","n","blocked: this query is too big"]`: &ServerNegErr{"n", "blocked: this query is too big", 0},
		`["NEG-ERR","n","blocked: x",500000]`:              &ServerNegErr{"n", "blocked: x", 500000},
		`["NEG-ERR","n","blocked: x",null]`:                &ServerNegErr{"n", "blocked: x", 0},
	} {
		b := []byte(s)
		got, err := ParseServerMessage(b)
		clear(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		``, `[]`, `{}`, `["OK"]`, `["OK","i"]`, `["OK","i","true",""]`, `["OK","i",true,""`, `["OK","i",true,""]x`, `["OK",1,true,""]`,
		`["FOO","x"]`, `["COUNT","q",{}]`, `["COUNT","q",5]`, `["COUNT","q",{"count":"5"}]`, `["COUNT","q",{"count":1,"hll":"00"}]`,
		`["NEG-MSG","n"]`, `["NEG-MSG","n","6"]`, `["EVENT","s"]`, `["EVENT","s",{}]`, `["EVENT",{}]`, `["NOTICE","x",` + strings.Repeat("[", 1<<20),
	} {
		if got, err := ParseServerMessage([]byte(s)); got != nil || !errors.Is(err, ErrSyntax) {
			t.Errorf("%.80s: %+v, %v", s, got, err)
		}
	}
}

func TestServerCountWithHLL(t *testing.T) {
	var h HLL
	h[0], h[255] = 3, 16
	m, err := ParseServerMessage(AppendCount(nil, "q", 2044, h[:]))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.(*ServerCount); got.Count != 2044 || string(got.HLL) != string(h[:]) {
		t.Errorf("%+v", got)
	}
}
