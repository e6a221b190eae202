// A client moves blobs between a node and khatru's Blossom server: the node mirrors from khatru, whose tokens and answers are its own,
// and one token serves at both. khatru reads tokens in plain base64 only, the SDK writes base64url only, and the node reads both.
import { Actions, createDeleteAuth, createUploadAuth } from 'blossom-client-sdk'
import { finalizeEvent, generateSecretKey, getPublicKey } from 'nostr-tools/pure'
import { createHash } from 'node:crypto'
import { steps, equal, refused } from './check.mjs'

const node = process.argv[2].replace(/^ws/, 'http'), khatru = process.argv[3]
const sk = generateSecretKey(), pk = getPublicKey(sk)
const signer = async draft => finalizeEvent(draft, sk)
const sha = b => createHash('sha256').update(b).digest('hex')
const bytes = new TextEncoder().encode('<svg xmlns="http://www.w3.org/2000/svg"/>'.repeat(500)), hash = sha(bytes)
const blob = new Blob([bytes], { type: 'image/svg+xml' })
const plain = event => ({ authorization: 'Nostr ' + Buffer.from(JSON.stringify(event)).toString('base64') })
let token, there

await steps([
  ['upload to khatru', async () => {
    token = await createUploadAuth(signer, hash)
    const res = await fetch(`${khatru}/upload`, { method: 'PUT', body: blob, headers: plain(token) })
    if (!res.ok) throw new Error(`${res.status} ${res.headers.get('x-reason')}`)
    there = await res.json()
    equal(there.sha256, hash, 'descriptor')
  }],
  ['the node mirrors from khatru, by the same token', async () => {
    const here = await Actions.mirrorBlob(node, there, { auth: token })
    equal([here.sha256, here.size], [hash, bytes.length], 'descriptor')
    equal(sha(new Uint8Array(await (await Actions.downloadBlob(node, hash)).arrayBuffer())), hash, 'bytes')
  }],
  ['the same token in plain base64', async () => {
    const res = await fetch(`${node}/upload`, { method: 'PUT', body: blob, headers: plain(token) })
    equal([res.status, (await res.json()).sha256], [200, hash], 'upload')
  }],
  ['the same token uploads to the node', async () => equal((await Actions.uploadBlob(node, blob, { auth: token })).sha256, hash, 'upload')],
  ['both list it', async () => {
    for (const server of [node, khatru]) equal((await Actions.listBlobs(server, pk)).map(b => b.sha256), [hash], server)
  }],
  ['deleted at khatru, kept at the node', async () => {
    const res = await fetch(`${khatru}/${hash}`, { method: 'DELETE', headers: plain(await createDeleteAuth(signer, hash)) })
    equal(res.ok, true, 'delete')
    equal(await Actions.hasBlob(node, hash), true, 'the node has')
  }],
  ['an origin that no longer has it', async () =>
    refused(Actions.mirrorBlob(node, { ...there, sha256: sha('x'), url: `${khatru}/${sha('x')}` }, { auth: await createUploadAuth(signer, sha('x')) }), /origin answered 404/, 'mirror')],
])
