"""The report: one HTML file from an analysed results folder."""
