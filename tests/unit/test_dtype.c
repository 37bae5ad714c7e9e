/*
 * Number formats: every 16-bit pattern there and back, rounding to nearest even, wrap-around.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"
#include "test.h"

TEST(every_16_bit_pattern_round_trips)
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        double half = f16_to_double((uint16_t)bits), brain = bf16_to_double((uint16_t)bits);
        if (isnan(half))
            EXPECT(isnan(f16_to_double(f16_from_double(half))));
        else
            EXPECT(f16_from_double(half) == bits);
        if (isnan(brain))
            EXPECT(isnan(bf16_to_double(bf16_from_double(brain))));
        else
            EXPECT(bf16_from_double(brain) == bits);
    }
}

/* Between two neighbours the nearer wins, and the even one in the middle. */
TEST(rounding_is_to_nearest_even)
{
    for (unsigned bits = 0; bits < 0x7bff; bits++) {
        double low = f16_to_double((uint16_t)bits), high = f16_to_double((uint16_t)(bits + 1)),
               middle = (low + high) / 2;
        EXPECT(f16_from_double(middle) == (bits & 1 ? bits + 1 : bits));
        EXPECT(f16_from_double(nextafter(middle, low)) == bits);
        EXPECT(f16_from_double(nextafter(middle, high)) == bits + 1);
    }
    for (unsigned bits = 0; bits < 0x7f7f; bits++) {
        double low = bf16_to_double((uint16_t)bits), high = bf16_to_double((uint16_t)(bits + 1)),
               middle = (low + high) / 2;
        EXPECT(bf16_from_double(middle) == (bits & 1 ? bits + 1 : bits));
        EXPECT(bf16_from_double(nextafter(middle, high)) == bits + 1);
    }
    EXPECT(f16_from_double(65519.99) == 0x7bff && f16_from_double(65520) == 0x7c00);
    EXPECT(isinf(bf16_to_double(bf16_from_double(3.4e38))));
}

/* No infinity: 0x7e is 448, and what rounds beyond it is NaN. */
TEST(every_8_bit_pattern)
{
    EXPECT(f8e4m3_to_double(0x38) == 1 && f8e4m3_to_double(0x7e) == 448 && f8e4m3_to_double(1) == 0x1p-9);
    for (unsigned bits = 0; bits < 256; bits++) {
        double x = f8e4m3_to_double((uint8_t)bits);
        EXPECT(isnan(x) == ((bits & 0x7f) == 0x7f));
        EXPECT(f8e4m3_from_double(x) == bits || isnan(x));
        if ((bits & 0x7f) >= 0x7e) continue;
        double next = f8e4m3_to_double((uint8_t)(bits + 1)), middle = (x + next) / 2;
        EXPECT(f8e4m3_from_double(middle) == (bits & 1 ? bits + 1 : bits));
        EXPECT(f8e4m3_from_double(nextafter(middle, x)) == bits);
        EXPECT(f8e4m3_from_double(nextafter(middle, next)) == bits + 1);
    }
    EXPECT(f8e4m3_from_double(464) == 0x7e && f8e4m3_from_double(nextafter(464, 500)) == 0x7f);
    EXPECT(f8e4m3_from_double(-INFINITY) == 0xff && isnan(round_to_dtype(DT_F8E4M3, 1e30)));
    EXPECT(fold_identity(FOLD_MAX, DT_F8E4M3).f == -448);
}

TEST(integers_wrap)
{
    EXPECT(integer_wrap(DT_I8, 200) == -56 && integer_wrap(DT_U8, -1) == 255 &&
           integer_wrap(DT_I32, 1LL << 31) == INT32_MIN);
    EXPECT(integer_wrap(DT_BOOL, 7) == 1 && integer_wrap(DT_U16, 65536 + 5) == 5);
}

TEST(elements_go_to_memory_and_back)
{
    for (int t = 0; t < DT_COUNT; t++) {
        char memory[8] = {0};
        number in = {.i = 1, .f = 1}, out;
        element_write((dtype)t, memory, in);
        out = element_read((dtype)t, memory);
        EXPECT(dtype_is_float((dtype)t) ? out.f == 1 : out.i == 1);
        dtype again;
        EXPECT(dtype_from_text(dtypes[t].text, &again) && again == (dtype)t);
    }
    dtype t;
    EXPECT(dtype_from_text("float", &t) && t == DT_F32);
    EXPECT(!dtype_from_text("floot", &t));
}

TEST_MAIN(CASE(every_16_bit_pattern_round_trips), CASE(rounding_is_to_nearest_even), CASE(every_8_bit_pattern),
          CASE(integers_wrap), CASE(elements_go_to_memory_and_back))
