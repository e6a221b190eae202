package nostr

import "strconv"

// The functions below append one whole frame each. Subscription ids and
// texts are escaped as JSON needs it. reason is "" or starts with one of the
// machine-readable prefixes and a colon.

// open starts a frame: a label and a first string.
func openFrame(dst []byte, label, first string) []byte {
	dst = append(dst, '[', '"')
	dst = append(dst, label...)
	dst = append(dst, '"', ',')
	return appendString(dst, first)
}

func appendComma(dst []byte, s string) []byte { return appendString(append(dst, ','), s) }

// AppendOK appends the answer to EVENT or AUTH (NIP-01).
func AppendOK(dst []byte, id string, ok bool, reason string) []byte {
	dst = openFrame(dst, "OK", id)
	dst = strconv.AppendBool(append(dst, ','), ok)
	return append(appendComma(dst, reason), ']')
}

// AppendEOSE appends the end of stored events, with the hints of NIP-67 if any
// are given.
func AppendEOSE(dst []byte, sub string, hints ...string) []byte {
	dst = openFrame(dst, "EOSE", sub)
	if len(hints) > 0 {
		dst = appendList(append(dst, ','), hints, appendString)
	}
	return append(dst, ']')
}

// AppendClosed appends the refusal or the end of a subscription (NIP-01).
func AppendClosed(dst []byte, sub, reason string) []byte {
	return append(appendComma(openFrame(dst, "CLOSED", sub), reason), ']')
}

// AppendNotice appends a text for humans (NIP-01).
func AppendNotice(dst []byte, text string) []byte {
	return append(openFrame(dst, "NOTICE", text), ']')
}

// AppendEvent appends an event of a subscription, from its JSON as Event.JSON
// returns it (NIP-01).
func AppendEvent(dst []byte, sub string, eventJSON []byte) []byte {
	dst = append(openFrame(dst, "EVENT", sub), ',')
	return append(append(dst, eventJSON...), ']')
}

// AppendAuth appends an authentication challenge (NIP-42).
func AppendAuth(dst []byte, challenge string) []byte {
	return append(openFrame(dst, "AUTH", challenge), ']')
}

// AppendCount appends the answer to COUNT (NIP-45), with the registers of an
// HLL unless hll is empty.
func AppendCount(dst []byte, id string, count int64, hll []byte) []byte {
	dst = append(openFrame(dst, "COUNT", id), `,{"count":`...)
	dst = strconv.AppendInt(dst, count, 10)
	if len(hll) > 0 {
		dst = appendHexString(append(dst, `,"hll":`...), hll)
	}
	return append(dst, '}', ']')
}

// AppendNegMsg appends a message of a reconciliation, for both sides (NIP-77).
func AppendNegMsg(dst []byte, sub string, msg []byte) []byte {
	dst = append(openFrame(dst, "NEG-MSG", sub), ',')
	return append(appendHexString(dst, msg), ']')
}

// AppendNegErr appends the refusal or the end of a reconciliation (NIP-77). As
// extra the relay may state how many records it would process.
func AppendNegErr(dst []byte, sub, reason string, extra ...int64) []byte {
	dst = appendComma(openFrame(dst, "NEG-ERR", sub), reason)
	for _, n := range extra {
		dst = strconv.AppendInt(append(dst, ','), n, 10)
	}
	return append(dst, ']')
}

// AppendReq appends a subscription (NIP-01).
func AppendReq(dst []byte, sub string, filters ...Filter) []byte {
	return append(appendFilters(openFrame(dst, "REQ", sub), filters), ']')
}

// AppendCountRequest appends a question for a count (NIP-45).
func AppendCountRequest(dst []byte, id string, filters ...Filter) []byte {
	return append(appendFilters(openFrame(dst, "COUNT", id), filters), ']')
}

func appendFilters(dst []byte, filters []Filter) []byte {
	for i := range filters {
		dst = filters[i].AppendJSON(append(dst, ','))
	}
	return dst
}

// AppendPublish appends an event to publish (NIP-01).
func AppendPublish(dst []byte, e *Event) []byte {
	return append(append(append(dst, `["EVENT",`...), e.JSON()...), ']')
}

// AppendAuthEvent appends the event that authenticates the client (NIP-42).
func AppendAuthEvent(dst []byte, e *Event) []byte {
	return append(append(append(dst, `["AUTH",`...), e.JSON()...), ']')
}

// AppendClose appends the end of a subscription (NIP-01).
func AppendClose(dst []byte, sub string) []byte {
	return append(openFrame(dst, "CLOSE", sub), ']')
}

// AppendNegOpen appends the opening of a reconciliation (NIP-77).
func AppendNegOpen(dst []byte, sub string, f Filter, msg []byte) []byte {
	dst = f.AppendJSON(append(openFrame(dst, "NEG-OPEN", sub), ','))
	return append(appendHexString(append(dst, ','), msg), ']')
}

// AppendNegClose appends the end of a reconciliation by the client (NIP-77).
func AppendNegClose(dst []byte, sub string) []byte {
	return append(openFrame(dst, "NEG-CLOSE", sub), ']')
}
