"""Arrays where there is no NumPy: memoryviews of a bytearray."""


def empty(shape, dtype):
    format, size = dtype
    count = 1
    for extent in shape:
        count *= extent
    memory = memoryview(bytearray(max(count, 1) * size)).cast(format)
    return memory[:0] if count == 0 else memory.cast("B").cast(format, shape) if len(shape) != 1 else memory


float32, float64, float16 = ("f", 4), ("d", 8), ("e", 2)
int8, int16, int32, int64 = ("b", 1), ("h", 2), ("i", 4), ("q", 8)
uint8, uint16, uint32, uint64 = ("B", 1), ("H", 2), ("I", 4), ("Q", 8)
bool = ("?", 1)
