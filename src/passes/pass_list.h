/*
 * The passes by name; passes.c puts them in order. Each returns whether it changed something.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PASSES_PASS_LIST_H
#define QUERN_PASSES_PASS_LIST_H

#include "ir/tile.h"

bool pass_specialise(tile_kernel *k);
bool pass_fold(tile_kernel *k);
bool pass_cse(tile_kernel *k);
bool pass_simplify(tile_kernel *k);
bool pass_licm(tile_kernel *k);
bool pass_split(tile_kernel *k);
bool pass_unmask(tile_kernel *k);
bool pass_dce(tile_kernel *k);
bool pass_carry(tile_kernel *k);

#endif
