// Reads records of 128 bytes (key, message, signature), writes for each the
// verdict of libsecp256k1, "1" or "0", and then on standard error the
// nanoseconds of processor time that one record took.
#include <secp256k1.h>
#include <secp256k1_extrakeys.h>
#include <secp256k1_schnorrsig.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(void) {
	secp256k1_context *c = secp256k1_context_create(SECP256K1_CONTEXT_VERIFY);
	size_t n = 0, room = 1024, i;
	unsigned char *in = malloc(128 * room), *out;
	while (in && fread(in + 128 * n, 128, 1, stdin) == 1)
		if (++n == room)
			in = realloc(in, 128 * (room *= 2));
	out = malloc(n + 1);
	if (!in || !out)
		return 1;
	clock_t start = clock();
	for (i = 0; i < n; i++) {
		unsigned char *b = in + 128 * i;
		secp256k1_xonly_pubkey p;
		out[i] = secp256k1_xonly_pubkey_parse(c, &p, b) && secp256k1_schnorrsig_verify(c, b + 64, b + 32, 32, &p) ? '1' : '0';
	}
	if (n > 0)
		fprintf(stderr, "%.0f", 1e9 * (double)(clock() - start) / CLOCKS_PER_SEC / n);
	return fwrite(out, 1, n, stdout) != n;
}
