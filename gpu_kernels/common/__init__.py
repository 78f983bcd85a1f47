"""What all GPU methods are made of: the compiler, the device, the layout, arithmetic of boxes,
headers.
"""
