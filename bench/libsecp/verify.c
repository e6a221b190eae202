/* Verifies signatures with libsecp256k1 and prints the nanoseconds of CPU that one took.
   stdin: records of key (32 octets), message (32) and signature (64). Argument: how many times to go over them. */
#include <secp256k1.h>
#include <secp256k1_extrakeys.h>
#include <secp256k1_schnorrsig.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  static unsigned char rec[4096][128];
  size_t n = fread(rec, 128, 4096, stdin);
  long times = argc > 1 ? atol(argv[1]) : 1;
  secp256k1_context *ctx = secp256k1_context_create(SECP256K1_CONTEXT_VERIFY);
  if (n == 0 || ctx == NULL) return 1;
  double began = now();
  for (long k = 0; k < times; k++)
    for (size_t i = 0; i < n; i++) {
      secp256k1_xonly_pubkey pub;
      if (!secp256k1_xonly_pubkey_parse(ctx, &pub, rec[i]) ||
          !secp256k1_schnorrsig_verify(ctx, rec[i] + 64, rec[i] + 32, 32, &pub)) {
        fprintf(stderr, "signature %zu is wrong\n", i);
        return 1;
      }
    }
  printf("%.1f\n", (now() - began) / (double)n / (double)times);
  return 0;
}
