package main

import (
	"context"
	"encoding/hex"
	"errors"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	gonostr "github.com/nbd-wtf/go-nostr"
)

// save stores an event as a relay would.
func save(db eventstore.Store, e *gonostr.Event) error {
	var x nostr.Event
	if err := errors.Join(fromHex(x.ID[:], e.ID), fromHex(x.PubKey[:], e.PubKey), fromHex(x.Sig[:], e.Sig)); err != nil {
		return err
	}
	x.CreatedAt, x.Kind, x.Content = nostr.Timestamp(e.CreatedAt), nostr.Kind(e.Kind), e.Content
	x.Tags = make(nostr.Tags, len(e.Tags))
	for i, t := range e.Tags {
		x.Tags[i] = nostr.Tag(t)
	}
	switch {
	case gonostr.IsEphemeralKind(e.Kind):
		return nil
	case gonostr.IsReplaceableKind(e.Kind), gonostr.IsAddressableKind(e.Kind):
		return db.ReplaceEvent(x)
	}
	if err := db.SaveEvent(x); err != nil && !errors.Is(err, eventstore.ErrDupEvent) {
		return err
	}
	return nil
}

// query answers the filters one after the other.
func query(ctx context.Context, db eventstore.Store, filters gonostr.Filters, limit int) ([]gonostr.Event, error) {
	var out []gonostr.Event
	for i := range filters {
		f, err := convert(&filters[i])
		if err != nil {
			return nil, err
		}
		if f.LimitZero {
			continue
		}
		for x := range db.QueryEvents(f, limit) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			e := gonostr.Event{
				ID: hex.EncodeToString(x.ID[:]), PubKey: hex.EncodeToString(x.PubKey[:]), Sig: hex.EncodeToString(x.Sig[:]),
				CreatedAt: gonostr.Timestamp(x.CreatedAt), Kind: int(x.Kind), Content: x.Content, Tags: make(gonostr.Tags, len(x.Tags)),
			}
			for k, t := range x.Tags {
				e.Tags[k] = gonostr.Tag(t)
			}
			out = append(out, e)
		}
	}
	return out, nil
}

func convert(f *gonostr.Filter) (nostr.Filter, error) {
	out := nostr.Filter{Limit: f.Limit, LimitZero: f.LimitZero, Search: f.Search}
	if f.Tags != nil {
		out.Tags = nostr.TagMap(f.Tags)
	}
	if f.Since != nil {
		out.Since = nostr.Timestamp(*f.Since)
	}
	if f.Until != nil {
		out.Until = nostr.Timestamp(*f.Until)
	}
	for _, k := range f.Kinds {
		out.Kinds = append(out.Kinds, nostr.Kind(k))
	}
	for _, s := range f.IDs {
		var id nostr.ID
		if err := fromHex(id[:], s); err != nil {
			return out, err
		}
		out.IDs = append(out.IDs, id)
	}
	for _, s := range f.Authors {
		var k nostr.PubKey
		if err := fromHex(k[:], s); err != nil {
			return out, err
		}
		out.Authors = append(out.Authors, k)
	}
	return out, nil
}

// fromHex reads hex digits that fill dst.
func fromHex(dst []byte, s string) error {
	if len(s) != 2*len(dst) {
		return errors.New("invalid: hex of another length")
	}
	_, err := hex.Decode(dst, []byte(s))
	return err
}
