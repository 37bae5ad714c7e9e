/*
 * Who of a block's threads runs first in emu, where several can go on.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_EMU_ORDER_H
#define QUERN_DEVICE_EMU_ORDER_H

typedef enum emu_order {
    EMU_IN_TURN,
    EMU_BACKWARDS,    /* in turn, the last of them first */
    EMU_LOWEST_FIRST, /* always */
    EMU_HIGHEST_FIRST,
    EMU_ORDERS
} emu_order;

#endif
