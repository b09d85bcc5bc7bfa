"""Every figure of summary.json, computed a second time from records/ with loops alone.

Nothing of the analysis is imported but its entry. Points are compared exactly; the ends of
intervals rest on draws, so they are held against what they must enclose: the point, and Student's t
on the block log ratios.
"""
