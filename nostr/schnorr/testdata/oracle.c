// Reads records of 128 bytes (key, message, signature) and writes for each the
// verdict of libsecp256k1, "1" or "0", then on standard error its
// nanoseconds of processor time for each record.
#include <secp256k1.h>
#include <secp256k1_extrakeys.h>
#include <secp256k1_schnorrsig.h>
#include <stdio.h>
#include <time.h>

int main(void) {
	secp256k1_context *c = secp256k1_context_create(SECP256K1_CONTEXT_VERIFY);
	unsigned char b[128];
	clock_t spent = 0;
	long n = 0;
	while (fread(b, sizeof b, 1, stdin) == 1) {
		secp256k1_xonly_pubkey p;
		clock_t start = clock();
		int ok = secp256k1_xonly_pubkey_parse(c, &p, b) && secp256k1_schnorrsig_verify(c, b + 64, b + 32, 32, &p);
		spent += clock() - start;
		n++;
		putchar(ok ? '1' : '0');
	}
	if (n > 0)
		fprintf(stderr, "%.0f", 1e9 * spent / CLOCKS_PER_SEC / n);
	return 0;
}
