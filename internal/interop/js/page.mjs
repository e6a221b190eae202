// A browser at the node's pages: page.mjs URL BINARY DIR CHROMIUM SECRET. Everything that a person does there, in real Chromium.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import puppeteer from 'puppeteer-core'
import { finalizeEvent } from 'nostr-tools/pure'
import { hexToBytes } from 'nostr-tools/utils'

const [relay, binary, dir, chromium, secret] = process.argv.slice(2)
const origin = relay.replace(/^ws/, 'http')
const code = () => JSON.parse(execFileSync(binary, ['--dir', dir, '--json', 'ui', 'code']))
const browser = await puppeteer.launch({ executablePath: chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] })
try {
  const page = await browser.newPage()
  const complaints = [], foreign = []
  page.on('console', m => { if (m.type() === 'error') complaints.push(m.text()) })
  page.on('pageerror', e => complaints.push(e.message))
  page.on('request', r => { if (!r.url().startsWith(origin)) foreign.push(r.url()) })
  const text = async sel => page.$eval(sel, e => e.textContent)
  const narrow = async what => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${what} is wider than a phone`)

  // The public page: what strangers see, hostile name and all.
  await page.setViewport({ width: 390, height: 800 })
  await page.goto(origin + '/')
  assert.match(await text('h1'), /<script>window\.pwned/)
  assert.match(await text('main'), /meshnode peer add --relay/)
  await narrow('the landing page')
  const info = await (await fetch(origin, { headers: { Accept: 'application/nostr+json' } })).json()
  assert.ok(info.supported_nips.includes(1), 'the information document is unaffected')

  // By code, from the link that the command line prints; with the keyboard alone.
  await page.goto(origin + '/ui/')
  await page.goto(code().url)
  await page.waitForFunction(() => document.getElementById('code').value.length >= 12)
  assert.equal(await page.evaluate(() => location.hash), '', 'the code stays in the address')
  await page.keyboard.press('Enter')
  await page.waitForSelector('#peers')
  await page.waitForSelector('#live[data-state=on]')
  const cookie = (await page.cookies())[0]
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie))
  for (const path of ['/ui/', '/ui/sync', '/ui/log', '/ui/why?id=' + 'ab'.repeat(32), '/ui/node']) {
    await page.goto(origin + path)
    await narrow(path)
    assert.equal(await page.$$eval('input:not([type=hidden]), select', l => l.filter(e => !e.labels?.length).length), 0, `${path}: a field without a label`)
    assert.equal(await page.$$eval('h1', l => l.length), 1, `${path}: one h1`)
  }

  // It is live: an event that comes in is counted on the open page.
  await page.goto(origin + '/ui/')
  await page.waitForSelector('#live[data-state=on]')
  const before = await text('#summary')
  execFileSync(binary, ['event', '--content', 'one more', '--relay', relay])
  await page.waitForFunction(b => document.getElementById('summary').textContent !== b, {}, before)

  // Keyboard and colours.
  await page.keyboard.press('Tab')
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip')
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor)
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }])
  const light = await ground()
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }])
  assert.notEqual(await ground(), light, 'dark is like light')

  // Signing out elsewhere closes what is open here; then in again with a key in an extension.
  execFileSync(binary, ['--dir', dir, 'ui', 'end'])
  await page.waitForSelector('#code')
  await page.exposeFunction('signFor', e => finalizeEvent(e, hexToBytes(secret)))
  await page.evaluateOnNewDocument(() => { window.nostr = { signEvent: e => window.signFor(e) } })
  await page.goto(origin + '/ui/')
  await page.waitForSelector('#nostr:not([disabled])')
  await page.click('#nostr')
  await page.waitForSelector('#peers')
  await page.evaluate(() => document.querySelector('.bar form button').click())
  await page.waitForSelector('#code')

  assert.equal(await page.evaluate(() => window.pwned), undefined, 'a script of a stranger ran')
  assert.deepEqual(foreign, [], 'requests left the origin')
  assert.deepEqual(complaints, [], 'the browser complained')
  console.log('ok page in ' + await browser.version())
} finally {
  await browser.close()
}
