// nostr-tools as a client: publish, query, subscribe, count, auth, protected events, gift wraps, deletion, sync.
import WebSocket from 'ws'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { finalizeEvent, generateSecretKey, getPublicKey } from 'nostr-tools/pure'
import * as nip11 from 'nostr-tools/nip11'
import * as nip17 from 'nostr-tools/nip17'
import * as nip44 from 'nostr-tools/nip44'
import { nip77 } from 'nostr-tools'
import { steps, equal, refused } from './check.mjs'

useWebSocketImplementation(WebSocket)
const url = process.argv[2]
const a = generateSecretKey(), b = generateSecretKey(), c = generateSecretKey()
const now = Math.floor(Date.now() / 1000)
const make = (sk, kind, content, tags = [], at = now) => finalizeEvent({ kind, content, tags, created_at: at }, sk)
const query = (relay, filters) => new Promise((yes, no) => {
  const got = []
  const sub = relay.subscribe(filters, { onevent: e => got.push(e), oneose: () => { sub.close(); yes(got) }, onclose: r => { if (r && !/closed by caller/.test(r)) no(new Error(r)) } })
})
const ids = list => list.map(e => e.id).sort()
let relay, notes

await steps([
  ['NIP-11', async () => {
    nip11.useFetchImplementation(fetch)
    const doc = await nip11.fetchRelayInformation(url)
    for (const n of [1, 9, 11, 40, 42, 45, 59, 70, 77]) if (!doc.supported_nips.includes(n)) throw new Error(`supported_nips lacks ${n}`)
  }],
  ['connect', async () => { relay = await Relay.connect(url) }],
  ['publish', async () => {
    notes = []
    for (let i = 0; i < 20; i++) notes.push(make(a, 1, `note ${i} <&> \u2028 é 🦀`, [['t', i % 2 ? 'odd' : 'even']], now - i))
    await Promise.all(notes.map(n => relay.publish(n)))
  }],
  ['query by author, kind, tag, time', async () => {
    const pk = getPublicKey(a)
    equal(ids(await query(relay, [{ authors: [pk], kinds: [1] }])), ids(notes), 'all')
    equal((await query(relay, [{ authors: [pk], limit: 3 }])).map(e => e.id), notes.slice(0, 3).map(e => e.id), 'newest first')
    equal(ids(await query(relay, [{ authors: [pk], '#t': ['odd'] }])), ids(notes.filter((_, i) => i % 2)), 'tag')
    equal(ids(await query(relay, [{ ids: [notes[7].id] }, { authors: [pk], since: now - 1 }])), ids([notes[7], notes[0], notes[1]]), 'two filters')
  }],
  ['a wrong signature is refused', async () => {
    const e = { ...make(a, 1, 'x') }
    e.sig = e.sig.slice(0, 126) + (e.sig.endsWith('00') ? '01' : '00')
    await refused(relay.publish(e), /^invalid:/, 'bad signature')
  }],
  ['subscribe live', async () => {
    const live = make(b, 1, 'live', [['t', 'live']])
    await new Promise((yes, no) => {
      const sub = relay.subscribe([{ '#t': ['live'] }], {
        onevent: e => { sub.close(); e.id === live.id ? yes() : no(new Error('another event')) },
        oneose: () => relay.publish(live).catch(no),
      })
    })
  }],
  ['count', async () => equal(await relay.count([{ authors: [getPublicKey(a)], kinds: [1] }], {}), 20, 'count')],
  ['count with HLL', async () => {
    const target = notes[0].id
    for (let i = 0; i < 5; i++) await relay.publish(make(generateSecretKey(), 7, '+', [['e', target]]))
    const { count, hll } = await relay.countWithHLL([{ kinds: [7], '#e': [target] }], {})
    equal(count, 5, 'count'); equal(hll?.length, 512, 'hll length')
  }],
  ['a replaceable event keeps its winner', async () => {
    await relay.publish(make(a, 10002, '', [['r', 'wss://one.test']], now - 5))
    const second = make(a, 10002, '', [['r', 'wss://two.test']], now - 4)
    await relay.publish(second)
    equal(ids(await query(relay, [{ kinds: [10002], authors: [getPublicKey(a)] }])), [second.id], 'winner')
  }],
  ['delete', async () => {
    await relay.publish(make(a, 5, '', [['e', notes[3].id]], now + 1))
    equal(await query(relay, [{ ids: [notes[3].id] }]), [], 'deleted')
    await refused(relay.publish(notes[3]), /^(blocked|invalid|deleted)/, 'deleted event again')
  }],
  ['auth and a protected event', async () => {
    const e = make(b, 1, 'protected', [['-']])
    await refused(relay.publish(e), /^auth-required:/, 'before auth')
    await relay.auth(async t => finalizeEvent(t, b))
    await relay.publish(e)
  }],
  ['gift wraps reach their recipient only', async () => {
    const wrap = nip17.wrapEvent(a, { publicKey: getPublicKey(b) }, 'hello in private')
    await relay.publish(wrap)
    const mine = await query(relay, [{ kinds: [1059], '#p': [getPublicKey(b)] }])
    equal(ids(mine), [wrap.id], 'recipient')
    equal(nip17.unwrapEvent(mine[0], b).content, 'hello in private', 'content')
    const stranger = await Relay.connect(url)
    await refused(query(stranger, [{ kinds: [1059], '#p': [getPublicKey(b)] }]), /auth-required/, 'stranger')
    await stranger.auth(async t => finalizeEvent(t, c))
    const seen = await query(stranger, [{ kinds: [1059], '#p': [getPublicKey(b)] }]).catch(e => { if (/restricted/.test(e)) return []; throw e })
    equal(seen, [], 'another key')
    stranger.close()
  }],
  ['negentropy sync', async () => {
    const storage = new nip77.NegentropyStorageVector()
    const kept = notes.filter((_, i) => i % 3 && i !== 3)
    for (const e of kept) storage.insert(e.created_at, e.id)
    const extra = make(a, 1, 'only here', [], now - 100)
    storage.insert(extra.created_at, extra.id)
    storage.seal()
    const have = [], need = []
    await new Promise((yes, no) => {
      const sync = new nip77.NegentropySync(relay, storage, { authors: [getPublicKey(a)], kinds: [1] }, {
        onhave: id => have.push(id), onneed: id => need.push(id), onclose: err => err ? no(new Error(err)) : yes(),
      })
      sync.start()
    })
    equal([...new Set(have)], [extra.id], 'have')
    equal([...new Set(need)].sort(), ids(notes.filter((_, i) => !(i % 3) && i !== 3)), 'need')
  }],
])
