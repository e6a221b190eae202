// NDK as a client: connect, publish, fetch, subscribe, auth by policy, count of what it sees.
import WebSocket from 'ws'
globalThis.WebSocket = WebSocket
const { default: NDK, NDKEvent, NDKPrivateKeySigner, NDKRelaySet, NDKRelayAuthPolicies, NDKSubscriptionCacheUsage } = await import('@nostr-dev-kit/ndk')
import { steps, equal } from './check.mjs'

const url = process.argv[2]
const signer = NDKPrivateKeySigner.generate()
const ndk = new NDK({ explicitRelayUrls: [url], signer, enableOutboxModel: false })
ndk.relayAuthDefaultPolicy = NDKRelayAuthPolicies.signIn({ ndk, signer })
const topic = `ndk-${Date.now()}`
const make = (content, tags = []) => new NDKEvent(ndk, { kind: 1, content, tags: [['t', topic], ...tags], created_at: Math.floor(Date.now() / 1000) })
let user

await steps([
  ['connect', async () => { await ndk.connect(5000); user = await signer.user(); if (ndk.pool.connectedRelays().length !== 1) throw new Error('not connected') }],
  ['publish', async () => { for (let i = 0; i < 10; i++) await make(`from NDK ${i}`).publish(undefined, 5000, 1) }],
  ['fetch', async () => {
    const got = await ndk.fetchEvents({ kinds: [1], '#t': [topic], authors: [user.pubkey] }, { cacheUsage: NDKSubscriptionCacheUsage.ONLY_RELAY })
    equal(got.size, 10, 'events')
    for (const e of got) if (!e.verifySignature(false)) throw new Error('signature')
  }],
  ['subscribe live', async () => {
    await new Promise((yes, no) => {
      const sub = ndk.subscribe({ '#t': [topic], limit: 0 }, { closeOnEose: false, cacheUsage: NDKSubscriptionCacheUsage.ONLY_RELAY })
      sub.on('event', e => { if (e.content === 'live') { sub.stop(); yes() } })
      sub.on('eose', () => make('live').publish(undefined, 5000, 1).catch(no))
      sub.start?.()
    })
  }],
  ['auth: a protected event of our own', async () => {
    const relay = ndk.pool.connectedRelays()[0]
    const e = make('protected', [['-']])
    await e.sign()
    await e.publish(undefined, 8000, 1).catch(async () => { await new Promise(r => setTimeout(r, 300)); await e.publish(undefined, 8000, 1) }) // the first try asks for auth
  }],
  ['profile', async () => {
    const p = new NDKEvent(ndk, { kind: 0, content: JSON.stringify({ name: 'ndk' }), tags: [], created_at: Math.floor(Date.now() / 1000) })
    await p.publish(undefined, 5000, 1)
    const u = ndk.getUser({ pubkey: user.pubkey })
    const profile = await u.fetchProfile({ cacheUsage: NDKSubscriptionCacheUsage.ONLY_RELAY })
    equal(profile?.name, 'ndk', 'name')
  }],
])
