// The foreign peer: reads one job on stdin, packs and unpacks with didcomm-node,
// writes one answer on stdout. Every key of the job is known to it.
const { Message, FromPrior } = require("didcomm-node");

async function main() {
  let text = "";
  for await (const chunk of process.stdin) text += chunk;
  const job = JSON.parse(text);
  const resolver = { resolve: async (did) => job.docs.find((d) => d.id === did) ?? null };
  const secrets = {
    get_secret: async (id) => job.secrets.find((s) => s.id === id) ?? null,
    find_secrets: async (ids) => ids.filter((id) => job.secrets.some((s) => s.id === id)),
  };
  const out = { packed: [], unpacked: [] };

  for (const c of job.pack) {
    try {
      const value = { ...c.message };
      if (c.prior) {
        const [jwt] = await new FromPrior(c.prior).pack(null, resolver, secrets);
        value.from_prior = jwt;
      }
      const m = new Message(value);
      let packed;
      if (c.signed_only) [packed] = await m.pack_signed(c.sign_by, resolver, secrets);
      else
        [packed] = await m.pack_encrypted(c.to, c.from || null, c.sign_by || null, resolver, secrets, {
          forward: !!c.forward,
          protect_sender: !!c.protect_sender,
          enc_alg_anon: c.enc || "A256cbcHs512EcdhEsA256kw",
        });
      out.packed.push({ packed });
    } catch (e) {
      out.packed.push({ error: String(e && e.message ? e.message : e) });
    }
  }

  for (let c of job.unpack) {
    try {
      let [m, meta] = await Message.unpack(c, resolver, secrets, {});
      let next = "";
      for (let f = m.try_parse_forward(); f; f = m.try_parse_forward()) {
        const v = typeof f.as_value === "function" ? f.as_value() : f;
        next = v.next;
        [m, meta] = await Message.unpack(JSON.stringify(v.forwarded_msg), resolver, secrets, {});
      }
      out.unpacked.push({ message: m.as_value(), meta, next });
    } catch (e) {
      out.unpacked.push({ error: String(e && e.message ? e.message : e) });
    }
  }
  process.stdout.write(JSON.stringify(out));
}
main();
