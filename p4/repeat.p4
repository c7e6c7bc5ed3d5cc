// P4 has no loop over registers or fields: EACH_VALUE(F) writes F(00) F(01) ... once for every value of a packet, with
// two hexadecimal digits.

#define SIXTEEN(F, row) \
    F(row##0) F(row##1) F(row##2) F(row##3) F(row##4) F(row##5) F(row##6) F(row##7) \
    F(row##8) F(row##9) F(row##a) F(row##b) F(row##c) F(row##d) F(row##e) F(row##f)

#if VALUES == 32
#define EACH_VALUE(F) SIXTEEN(F, 0) SIXTEEN(F, 1)
#elif VALUES == 64
#define EACH_VALUE(F) SIXTEEN(F, 0) SIXTEEN(F, 1) SIXTEEN(F, 2) SIXTEEN(F, 3)
#else
#define EACH_VALUE(F) \
    SIXTEEN(F, 0) SIXTEEN(F, 1) SIXTEEN(F, 2) SIXTEEN(F, 3) SIXTEEN(F, 4) SIXTEEN(F, 5) SIXTEEN(F, 6) SIXTEEN(F, 7) \
    SIXTEEN(F, 8) SIXTEEN(F, 9) SIXTEEN(F, a) SIXTEEN(F, b) SIXTEEN(F, c) SIXTEEN(F, d) SIXTEEN(F, e) SIXTEEN(F, f)
#endif
