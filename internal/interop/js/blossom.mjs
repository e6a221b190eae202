// blossom-client-sdk as a client: upload, has, download, list, mirror, media, report, delete, against a node's blob face. Also what a
// browser asks before each of these.
import { Actions, createDeleteAuth, createMirrorAuth, createUploadAuth } from 'blossom-client-sdk'
import WebSocket from 'ws'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { finalizeEvent, generateSecretKey, getPublicKey } from 'nostr-tools/pure'
import { createHash } from 'node:crypto'
import { steps, equal, refused } from './check.mjs'

useWebSocketImplementation(WebSocket)
const ws = process.argv[2], other = process.argv[3].replace(/^ws/, 'http')
const http = ws.replace(/^ws/, 'http')
const sk = generateSecretKey(), pk = getPublicKey(sk), stranger = generateSecretKey()
const now = Math.floor(Date.now() / 1000)
const signer = key => async draft => finalizeEvent(draft, key)
const sha = b => createHash('sha256').update(b).digest('hex')
const bytes = new Uint8Array(300000).map((_, i) => i * 31 >> 3)
const hash = sha(bytes), unnamed = new TextEncoder().encode('nobody names me')
const blob = new Blob([bytes], { type: 'image/png' })
const upload = key => (server, hash) => createUploadAuth(signer(key), hash, { servers: server })
const mirror = key => (server, hash) => createMirrorAuth(signer(key), hash, { servers: server })
let descriptor, relay, mirrored

await steps([
  ['publish the event that names the blob', async () => {
    for (const url of [ws, process.argv[3]]) {
      relay = await Relay.connect(url)
      await relay.publish(finalizeEvent({ kind: 1, created_at: now, content: `look: ${http}/${hash}.png`, tags: [['imeta', `url ${http}/${hash}.png`, `x ${hash}`]] }, sk))
      relay.close()
    }
  }],
  ['has not', async () => equal(await Actions.hasBlob(http, hash), false, 'has')],
  ['upload', async () => {
    descriptor = await Actions.uploadBlob(http, blob, { onAuth: upload(sk) })
    equal([descriptor.sha256, descriptor.size, descriptor.type], [hash, bytes.length, 'image/png'], 'descriptor')
    equal(descriptor.url, `${http}/${hash}.png`, 'url')
    equal(descriptor.nip94.find(t => t[0] === 'x'), ['x', hash], 'nip94')
  }],
  ['upload without an event is refused', async () =>
    refused(Actions.uploadBlob(http, new Blob([unnamed]), { onAuth: upload(sk) }), /no event here names/, 'upload')],
  ['has', async () => equal(await Actions.hasBlob(http, hash), true, 'has')],
  ['download', async () => {
    const res = await Actions.downloadBlob(http, hash)
    equal(sha(new Uint8Array(await res.arrayBuffer())), hash, 'bytes')
  }],
  ['range', async () => {
    const res = await fetch(descriptor.url, { headers: { range: 'bytes=1000-1999' } })
    equal([res.status, res.headers.get('content-range')], [206, `bytes 1000-1999/${bytes.length}`], 'range')
    equal(sha(new Uint8Array(await res.arrayBuffer())), sha(bytes.slice(1000, 2000)), 'bytes')
  }],
  ['CID', async () => {
    const res = await fetch(`${http}/ipfs/${descriptor.ipfs}`)
    equal([res.status, res.headers.get('x-cid')], [200, descriptor.ipfs], 'CID')
    equal(sha(new Uint8Array(await res.arrayBuffer())), hash, 'bytes')
  }],
  ['preflight', async () => {
    for (const method of ['GET', 'HEAD', 'PUT', 'DELETE']) {
      const res = await fetch(method === 'PUT' ? `${http}/upload` : descriptor.url, { method: 'OPTIONS', headers: { origin: 'https://client.example', 'access-control-request-method': method, 'access-control-request-headers': 'authorization' } })
      equal([res.ok, res.headers.get('access-control-allow-origin')], [true, '*'], method)
      if (!res.headers.get('access-control-allow-methods').includes(method)) throw new Error(`${method} is not allowed`)
      if (!/authorization/i.test(res.headers.get('access-control-allow-headers'))) throw new Error('Authorization is not allowed')
    }
  }],
  ['list', async () => equal((await Actions.listBlobs(http, pk)).map(b => b.sha256), [hash], 'list')],
  ['mirror', async () => {
    mirrored = await Actions.mirrorBlob(other, descriptor, { onAuth: mirror(sk) })
    equal(mirrored.sha256, hash, 'mirror')
    equal(sha(new Uint8Array(await (await Actions.downloadBlob(other, hash)).arrayBuffer())), hash, 'bytes')
  }],
  ['mirror with a token for another blob is refused', async () =>
    refused(Actions.mirrorBlob(other, descriptor, { onAuth: () => createUploadAuth(signer(sk), sha(unnamed)) }), /x tag/, 'mirror')],
  ['report', async () => {
    const event = finalizeEvent({ kind: 1984, created_at: now, content: 'a test', tags: [['x', hash, 'other']] }, stranger)
    const res = await fetch(`${http}/report`, { method: 'PUT', body: JSON.stringify(event) })
    equal(res.status, 200, 'report')
  }],
  ['a stranger cannot delete', async () =>
    refused(Actions.deleteBlob(http, hash, { onAuth: () => createDeleteAuth(signer(stranger), hash) }), /not uploaded by this key/, 'delete')],
  ['delete', async () => {
    equal(await Actions.deleteBlob(http, hash, { onAuth: () => createDeleteAuth(signer(sk), hash) }), true, 'delete')
    equal(await Actions.hasBlob(http, hash), false, 'has')
    equal(await Actions.hasBlob(other, hash), true, 'the mirror has')
  }],
  ['the relay beside it', async () => {
    const doc = await (await fetch(http, { headers: { accept: 'application/nostr+json' } })).json()
    if (!Array.isArray(doc.supported_nips)) throw new Error('the information document is gone')
    equal((await fetch(`${http}/health`)).status, 200, 'health')
  }],
])
