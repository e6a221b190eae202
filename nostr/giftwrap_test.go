package nostr

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestGiftWrap(t *testing.T) {
	a, b, c := secret(3), secret(5), secret(7)
	for _, kind := range []Kind{KindGiftWrap, KindEphemeralGiftWrap} {
		rumor := &Event{Kind: 14, CreatedAt: caseTime, Tags: []Tag{{"p", b.PubKey().String()}}, Content: "hello\x00é"}
		random := bytes.NewReader([]byte{0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5})
		wrap, err := Wrap(rumor, a, b.PubKey(), kind, caseTime, random, Tag{"expiration", "1800000000"})
		if err != nil {
			t.Fatal(err)
		}
		if wrap.Kind != kind || wrap.CreatedAt != caseTime-5 || wrap.PubKey == a.PubKey() || len(wrap.Tags) != 2 || wrap.Tags[0][1] != b.PubKey().String() {
			t.Errorf("wrap %s", wrap.JSON())
		}
		if bytes.Contains(wrap.JSON(), []byte(a.PubKey().String())) {
			t.Error("the wrap names the sender")
		}
		got, err := Unwrap(parseBoth(t, string(wrap.JSON())), b)
		if err != nil {
			t.Fatal(err)
		}
		if got.PubKey != a.PubKey() || got.ID != rumor.ID || !sameEvent(got, rumor) {
			t.Errorf("rumor %+v", got)
		}
		if _, err := Unwrap(wrap, c); !errors.Is(err, ErrDecrypt) {
			t.Errorf("a stranger got %v", err)
		}
	}
	if _, err := Wrap(&Event{}, a, b.PubKey(), 1, caseTime, nil); err == nil {
		t.Error("kind 1 as a gift wrap")
	}
	if _, err := Wrap(&Event{}, a, b.PubKey(), KindGiftWrap, caseTime, iotest.ErrReader(errors.New("dry"))); err == nil || !strings.Contains(err.Error(), "dry") {
		t.Errorf("no randomness gave %v", err)
	}
	if _, err := Wrap(&Event{}, a, PubKey{}, KindGiftWrap, caseTime, nil); err == nil {
		t.Error("a recipient that is no point")
	}
	if _, err := Seal(&Event{}, SecretKey{}, b.PubKey(), caseTime, nil); err == nil {
		t.Error("sealed with the key 0")
	}
	for range 50 {
		at, err := backdate(caseTime, nil)
		if err != nil || at > caseTime || at <= caseTime-maxBackdate {
			t.Errorf("dated %d, %v", at, err)
		}
	}
}

// enclose wraps any seal text as if it were right.
func enclose(t *testing.T, seal string, to PubKey) *Event {
	t.Helper()
	wrap := &Event{Kind: KindGiftWrap, Tags: []Tag{{"p", to.String()}}}
	if err := encloseAndSign(wrap, seal, secret(9), to); err != nil {
		t.Fatal(err)
	}
	return wrap
}

func TestUnwrapRefuses(t *testing.T) {
	a, b, c := secret(3), secret(5), secret(7)
	sealOf := func(inner string, change func(*Event)) *Event {
		seal := &Event{Kind: KindSeal, Tags: []Tag{}}
		if err := encloseAndSign(seal, inner, a, b.PubKey()); err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(seal)
		}
		return enclose(t, string(seal.appendJSON(nil)), b.PubKey())
	}
	rumorOf := func(k SecretKey) *Event {
		e := &Event{PubKey: k.PubKey(), Tags: []Tag{}, Content: "x"}
		e.ID = e.ComputeID()
		return e
	}
	resign := func(e *Event) {
		if err := e.Sign(a); err != nil {
			t.Fatal(err)
		}
	}
	good := string(rumorOf(a).RumorJSON())
	if _, err := Unwrap(sealOf(good, nil), b); err != nil {
		t.Fatal(err)
	}
	changed := sealOf(good, nil)
	changed.Sig[0] ^= 1
	changedID := sealOf(good, nil)
	changedID.CreatedAt++
	for name, wrap := range map[string]*Event{
		"author of the rumor":   sealOf(string(rumorOf(c).RumorJSON()), nil),
		"signed rumor":          sealOf(string(rumorOf(a).JSON()), nil),
		"id of the rumor":       sealOf(strings.Replace(good, `"x"`, `"y"`, 1), nil),
		"text of the rumor":     sealOf("{}", nil),
		"signature of the seal": sealOf(good, func(e *Event) { e.Sig[0] ^= 1 }),
		"tags on the seal":      sealOf(good, func(e *Event) { e.Tags = []Tag{{"p", "x"}}; resign(e) }),
		"kind of the seal":      sealOf(good, func(e *Event) { e.Kind = 1; resign(e) }),
		"text of the seal":      enclose(t, "hello", b.PubKey()),
		"signature of the wrap": changed,
		"id of the wrap":        changedID,
		"kind of the wrap":      {Kind: 1},
	} {
		if e, err := Unwrap(wrap, b); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// The worked example of NIP-59.
func TestGiftWrapExample(t *testing.T) {
	recipient, err := ParseSecretKey("e108399bd8424357a710b606ae0c13166d853d327e47a6e5e038197346bdbf45")
	if err != nil {
		t.Fatal(err)
	}
	wrap := parseBoth(t, `{"content":"AhC3Qj/QsKJFWuf6xroiYip+2yK95qPwJjVvFujhzSguJWb/6TlPpBW0CGFwfufCs2Zyb0JeuLmZhNlnqecAAalC4ZCugB+I9ViA5pxLyFfQjs1lcE6KdX3euCHBLAnE9GL/+IzdV9vZnfJH6atVjvBkNPNzxU+OLCHO/DAPmzmMVx0SR63frRTCz6Cuth40D+VzluKu1/Fg2Q1LSst65DE7o2efTtZ4Z9j15rQAOZfE9jwMCQZt27rBBK3yVwqVEriFpg2mHXc1DDwHhDADO8eiyOTWF1ghDds/DxhMcjkIi/o+FS3gG1dG7gJHu3KkGK5UXpmgyFKt+421m5o++RMD/BylS3iazS1S93IzTLeGfMCk+7IKxuSCO06k1+DaasJJe8RE4/rmismUvwrHu/HDutZWkvOAhd4z4khZo7bJLtiCzZCZ74lZcjOB4CYtuAX2ZGpc4I1iOKkvwTuQy9BWYpkzGg3ZoSWRD6ty7U+KN+fTTmIS4CelhBTT15QVqD02JxfLF7nA6sg3UlYgtiGw61oH68lSbx16P3vwSeQQpEB5JbhofW7t9TLZIbIW/ODnI4hpwj8didtk7IMBI3Ra3uUP7ya6vptkd9TwQkd/7cOFaSJmU+BIsLpOXbirJACMn+URoDXhuEtiO6xirNtrPN8jYqpwvMUm5lMMVzGT3kMMVNBqgbj8Ln8VmqouK0DR+gRyNb8fHT0BFPwsHxDskFk5yhe5c/2VUUoKCGe0kfCcX/EsHbJLUUtlHXmTqaOJpmQnW1tZ/siPwKRl6oEsIJWTUYxPQmrM2fUpYZCuAo/29lTLHiHMlTbarFOd6J/ybIbICy2gRRH/LFSryty3Cnf6aae+A9uizFBUdCwTwffc3vCBae802+R92OL78bbqHKPbSZOXNC+6ybqziezwG+OPWHx1Qk39RYaF0aFsM4uZWrFic97WwVrH5i+/Nsf/OtwWiuH0gV/SqvN1hnkxCTF/+XNn/laWKmS3e7wFzBsG8+qwqwmO9aVbDVMhOmeUXRMkxcj4QreQkHxLkCx97euZpC7xhvYnCHarHTDeD6nVK+xzbPNtzeGzNpYoiMqxZ9bBJwMaHnEoI944Vxoodf51cMIIwpTmmRvAzI1QgrfnOLOUS7uUjQ/IZ1Qa3lY08Nqm9MAGxZ2Ou6R0/Z5z30ha/Q71q6meAs3uHQcpSuRaQeV29IASmye2A2Nif+lmbhV7w8hjFYoaLCRsdchiVyNjOEM4VmxUhX4VEvw6KoCAZ/XvO2eBF/SyNU3Of4SO","kind":1059,"created_at":1703021488,"pubkey":"18b1a75918f1f2c90c23da616bce317d36e348bcf5f7ba55e75949319210c87c","id":"5c005f3ccf01950aa8d131203248544fb1e41a0d698e846bd419cec3890903ac","sig":"35fabdae4634eb630880a1896a886e40fd6ea8a60958e30b89b33a93e6235df750097b04f9e13053764251b8bc5dd7e8e0794a3426a90b6bcc7e5ff660f54259","tags":[["p","166bf3765ebd1fc55decfe395beff2ea3b2a4e0a8946e7eb578512b555737c99"]]}`)
	rumor, err := Unwrap(wrap, recipient)
	if err != nil {
		t.Fatal(err)
	}
	if rumor.ID.String() != "9dd003c6d3b73b74a85a9ab099469ce251653a7af76f523671ab828acd2a0ef9" || rumor.Content != "Are you going to the party tonight?" {
		t.Errorf("rumor %s", rumor.RumorJSON())
	}
}

// FuzzUnwrap puts any text where the seal and where the rumor belong, rightly
// encrypted and signed around it.
func FuzzUnwrap(f *testing.F) {
	a, b := secret(3), secret(5)
	rumor := &Event{PubKey: a.PubKey(), Tags: []Tag{}, Content: "x"}
	rumor.ID = rumor.ComputeID()
	f.Add(string(rumor.RumorJSON()), true)
	f.Add(string(rumor.JSON()), true)
	f.Add(string(rumor.RumorJSON()), false)
	f.Add("{}", false)
	key, err := ConversationKey(a, b.PubKey())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, sealed bool) {
		text = strings.ToValidUTF8(text, "?")
		if text == "" {
			return
		}
		content, err := Encrypt(text, key)
		if err != nil {
			t.Fatal(err)
		}
		e := &Event{Kind: KindGiftWrap, Tags: []Tag{}, Content: content}
		open := Unwrap
		if sealed {
			e.Kind, open = KindSeal, Unseal
		}
		if err := e.Sign(a); err != nil {
			t.Fatal(err)
		}
		got, err := open(e, b)
		if err != nil {
			return
		}
		if !sealed || got.PubKey != a.PubKey() || got.ID != got.ComputeID() || got.Sig != (Sig{}) {
			t.Fatalf("%q gave %s", text, got.RumorJSON())
		}
	})
}
