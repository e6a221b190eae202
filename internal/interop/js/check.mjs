// A step is one thing a client does; its name goes out when it worked, and the first failure ends the run with status 1.
export async function steps(list) {
  for (const [name, run] of list) {
    try {
      await Promise.race([run(), new Promise((_, no) => setTimeout(() => no(new Error('no answer in 20 s')), 20000).unref())])
      console.log(`ok ${name}`)
    } catch (e) {
      console.log(`FAIL ${name}: ${e?.stack ?? e}`)
      process.exit(1)
    }
  }
  process.exit(0)
}

export function equal(got, want, what) {
  const [g, w] = [JSON.stringify(got), JSON.stringify(want)]
  if (g !== w) throw new Error(`${what}: got ${g}, want ${w}`)
}

export async function refused(promise, pattern, what) {
  try {
    await promise
  } catch (e) {
    const text = String(e?.message ?? e)
    if (!pattern.test(text)) throw new Error(`${what}: refused with ${text}, want ${pattern}`)
    return
  }
  throw new Error(`${what}: was not refused`)
}
